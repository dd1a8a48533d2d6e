"""Who may ask: a bearer token."""

from __future__ import annotations

import hmac
import os

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.plans.plan_client import TOKEN_VARIABLE

OPEN_PATH = "/health"
"""Path that is answered to all."""

MIN_TOKEN = 16
"""Characters that a token must have; a shorter one is guessed."""


class Gate:
    """Refuse requests without the token, and take all others for JSON: curl calls it a form.

    The token, of visible ASCII characters, is None if all may ask.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._right = app, None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            headers = [header for header in scope["headers"] if header[0] != b"content-type"]
            if scope["path"] != OPEN_PATH and not self._is_borne(headers):
                remedy = f"set {TOKEN_VARIABLE}, or send 'Authorization: Bearer TOKEN'"
                told = {"WWW-Authenticate": "Bearer", "Connection": "close"}
                answer = JSONResponse({"detail": f"token: is missing or wrong; {remedy}"}, 401, told)
                await answer(scope, receive, send)
                return
            scope = {**scope, "headers": [*headers, (b"content-type", b"application/json")]}
        await self._app(scope, receive, send)

    def _is_borne(self, headers: list[tuple[bytes, bytes]]) -> bool:
        """Compare in a time that does not tell how much of a wrong token is right."""
        given = [value for name, value in headers if name == b"authorization"]
        return self._right is None or (len(given) == 1 and hmac.compare_digest(given[0], self._right))


def read_token() -> str | None:
    """Return the token of the environment, or None; a `ValueError` says why one is of no use."""
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        return None
    if len(token) < MIN_TOKEN or not all("!" <= character <= "~" for character in token):
        raise ValueError(
            f"{TOKEN_VARIABLE}: is no token; use one of at least {MIN_TOKEN} letters and digits, "
            "such as `openssl rand -hex 16` makes"
        )
    return token
