"""Who may ask, and how much they may send: a bearer token, and a limit on what a request carries."""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from runtime.plans.plan_client import TOKEN_VARIABLE

LEAST_TOKEN = 16
"""Characters that a token must have; a shorter one is guessed."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


class TokenNeeded:
    """Refuse requests that do not bear the token.

    Args:
        app: What answers those that do.
        token: Of visible ASCII characters.
        open_path: What is answered to all.
    """

    def __init__(self, app: Asgi, token: str, open_path: str) -> None:
        """Keep what is compared with."""
        self._app, self._open_path = app, open_path
        self._right = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"] == self._open_path or self._is_borne(scope):
            await self._app(scope, receive, send)
            return
        line = f"token: is missing or wrong; set {TOKEN_VARIABLE}, or send 'Authorization: Bearer TOKEN'"
        answer = JSONResponse({"detail": line}, 401, {"WWW-Authenticate": "Bearer", "Connection": "close"})
        await answer(scope, receive, send)

    def _is_borne(self, scope: Scope) -> bool:
        """Compare in a time that does not tell how much of a wrong token is right."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._right)


class BodyLimit:
    """Refuse requests that carry too much, and take all others for JSON: curl calls it a form.

    What is too much is refused before it is all read, mostly before any of it is. Only what is at most twice
    too long is read to its end, and forgotten: many a client looks for an answer after it has sent all.

    Args:
        app: What answers those.
        most: Bytes that a request may carry.
    """

    def __init__(self, app: Asgi, most: int) -> None:
        """Keep the limit."""
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, once it is all there."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(Request(scope, receive))
        except ClientDisconnect:
            return
        if body is None:
            line = (
                f"body: has more than {self._most / 1e6:g} MB; send less, or start the server with a larger"
            )
            # It is not read to its end, so nothing else can come after it.
            answer = JSONResponse({"detail": f"{line} --max-body-mb"}, 413, {"Connection": "close"})
            await answer(scope, receive, send)
            return
        parts = iter([{"type": "http.request", "body": body}])

        async def read() -> Scope:
            return next(parts, None) or await receive()

        others = [header for header in scope["headers"] if header[0] != b"content-type"]
        headers = [*others, (b"content-type", b"application/json")]
        await self._app({**scope, "headers": headers}, read, send)

    async def _read(self, request: Request) -> bytes | None:
        """Return what a request carries; None if it is too much."""
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > 2 * self._most:
            return None
        body, size = bytearray(), 0
        async for part in request.stream():
            size += len(part)
            if size <= self._most:
                body += part
            elif size > 2 * self._most:
                break
        return bytes(body) if size <= self._most else None


def read_token(path: Path | None) -> str | None:
    """Return the token of a file, else of the environment, or None if there is neither.

    Raises:
        ValueError: The file cannot be read, or what is there is no token.
    """
    if path is None:
        token, where = os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE
        if not token:
            return None
    else:
        where = f"token-file: {path}"
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise ValueError(f"{where} cannot be read ({reason}); write the token there") from None
    if len(token) < LEAST_TOKEN or not all("!" <= character <= "~" for character in token):
        raise ValueError(
            f"{where}: is no token; use one of at least {LEAST_TOKEN} letters and digits, "
            "such as `openssl rand -hex 16` makes"
        )
    return token
