"""Who may ask, and how much they may send: a bearer token, and a limit on what a request carries."""

from __future__ import annotations

import hmac
import os
from pathlib import Path

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.plans.plan_client import TOKEN_VARIABLE

OPEN_PATH = "/health"
"""What is answered to all."""

MIN_TOKEN = 16
"""Characters that a token must have; a shorter one is guessed."""


class Gate:
    """Refuse requests without the token or with too much, and take all others for JSON: curl calls it a form.

    Too much is refused before it is all read, mostly before any of it is. Only what is at most twice too long
    is read to its end, and forgotten: many a client looks for an answer after it has sent all.

    Args:
        app: The application behind it.
        token: Visible ASCII characters that every request must bear; None if all may ask.
        max_bytes: Bytes that a request may carry.
    """

    def __init__(self, app: ASGIApp, token: str | None, max_bytes: int) -> None:
        """Keep what is compared with."""
        self._app, self._max_bytes = app, max_bytes
        self._right = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = [header for header in scope["headers"] if header[0] != b"content-type"]
        if scope["path"] != OPEN_PATH and not self._is_borne(headers):
            line = f"token: is missing or wrong; set {TOKEN_VARIABLE}, or send 'Authorization: Bearer TOKEN'"
            told = {"WWW-Authenticate": "Bearer", "Connection": "close"}
            await JSONResponse({"detail": line}, 401, told)(scope, receive, send)
        else:
            headers.append((b"content-type", b"application/json"))
            await self._app({**scope, "headers": headers}, self._limited(headers, receive), send)

    def _is_borne(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Compare in a time that does not tell how much of a wrong token is right."""
        given = [value for name, value in headers if name == b"authorization"]
        return self._right is None or (len(given) == 1 and hmac.compare_digest(given[0], self._right))

    def _limited(self, headers: list[tuple[bytes, bytes]], receive: Receive) -> Receive:
        """Return a `receive` that ends what is too large, after which the connection has no use."""
        length = dict(headers).get(b"content-length", b"0")
        size = int(length) if length.isdigit() and int(length) > 2 * self._max_bytes else 0
        limit = f"{self._max_bytes / 1e6:g} MB"
        line = f"body: has more than {limit}; send less, or start the server with a larger --max-body-mb"

        async def read() -> Message:
            nonlocal size
            while size <= 2 * self._max_bytes:
                part = await receive()
                size += len(part.get("body", b""))
                if size <= self._max_bytes:
                    return part
                if not part.get("more_body"):
                    break
            raise HTTPException(413, line, {"Connection": "close"})

        return read


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
    if len(token) < MIN_TOKEN or not all("!" <= character <= "~" for character in token):
        raise ValueError(
            f"{where}: is no token; use one of at least {MIN_TOKEN} letters and digits, "
            "such as `openssl rand -hex 16` makes"
        )
    return token
