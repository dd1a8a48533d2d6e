"""The service over HTTP: one route for each request, JSON both ways, errors in one line.

Requests that wait for a job's next plan sleep until there is news of it, and need no thread. At the end the
server answers them all, and waits for nobody. Who may ask, a bearer token tells.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated
from weakref import WeakValueDictionary

import uvicorn
from fastapi import FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.plans.plan_client import TOKEN_VARIABLE
from runtime.server.bodies import DeployedPlanAnswer, NotYetError, RequestError, refusal
from runtime.server.service import Service

OPEN_PATH = "/health"
"""Path that is answered to all."""

MIN_TOKEN = 16
"""Characters that a token must have; a shorter one is guessed."""

MAX_WAIT_S = 60.0
"""How long a request may wait for a plan."""

_MIN_WAIT_S = 1e-3
"""Clocks that differ a little must not make a request that waits ask without a pause."""

_GRACE_S = 10
"""Longest time for requests that are still being answered at the end."""


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
            given = [value for name, value in headers if name == b"authorization"]
            # The time of the comparison must not tell how much of a wrong token is right.
            is_borne = self._right is None or (len(given) == 1 and hmac.compare_digest(given[0], self._right))
            if scope["path"] != OPEN_PATH and not is_borne:
                remedy = f"set {TOKEN_VARIABLE}, or send 'Authorization: Bearer TOKEN'"
                challenge = {"WWW-Authenticate": "Bearer", "Connection": "close"}
                answer = JSONResponse({"detail": f"token: is missing or wrong; {remedy}"}, 401, challenge)
                await answer(scope, receive, send)
                return
            scope = {**scope, "headers": [*headers, (b"content-type", b"application/json")]}
        await self._app(scope, receive, send)


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


class News(WeakValueDictionary[str, asyncio.Event]):
    """For each job of which news are waited for in the event loop, the event that is set at the next."""

    is_over = False

    def wake(self, job: str) -> None:
        """Wake all that wait for a job."""
        if (event := self.pop(job, None)) is not None:
            event.set()

    def close(self) -> None:
        """Wake all that wait for anything, and let nobody wait any more."""
        self.is_over = True
        for job in list(self):
            self.wake(job)


async def next_plan(
    service: Service, news: News, job: str, newer_than: int, wait_s: float
) -> DeployedPlanAnswer | None:
    """Return the plan of `Service.deployed` as soon as there is one, or None after a time without."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + wait_s
    while True:
        event = news.setdefault(job, asyncio.Event())  # before the look-up, so that no news is missed
        left_s = 0.0 if news.is_over else end_s - loop.time()
        try:
            plan = await run_in_threadpool(service.deployed, job, newer_than)
        except NotYetError:
            if left_s <= 0:
                raise
            plan = None
        if plan is not None or left_s <= 0:
            return plan
        due_s = max(service.due_in_s(job), _MIN_WAIT_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), min(left_s, due_s))


def create_app(service: Service, token: str | None = None) -> FastAPI:
    """Return the application; the service is closed when it shuts down.

    Every request but `OPEN_PATH` must bear the token, if there is one.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.news, loop = News(), asyncio.get_running_loop()
        service.on_news = lambda job: loop.call_soon_threadsafe(app.state.news.wake, job)
        yield
        service.close()

    app = FastAPI(title="schedsearch", description="Frontiers and deployed plans.", lifespan=lifespan)
    app.add_middleware(Gate, token=token)
    for method, path, status, answer in (
        ("POST", "/jobs", 201, service.register),
        ("GET", "/jobs", 200, service.jobs),
        ("GET", "/jobs/{job}", 200, service.status),
        ("POST", "/jobs/{job}/profile", 200, service.upload),
        ("GET", "/jobs/{job}/frontier", 200, service.frontier),
        ("GET", "/jobs/{job}/plan", 200, service.plan),
        ("POST", "/jobs/{job}/straggler", 200, service.set_straggler),
        ("DELETE", "/jobs/{job}", 204, service.delete),
    ):
        app.add_api_route(path, answer, methods=[method], status_code=status)

    @app.get(OPEN_PATH)
    async def health() -> dict[str, str]:
        """Tell that the server is there; it needs no token."""
        return {"status": "ok"}

    @app.get("/jobs/{job}/deployed", response_model=DeployedPlanAnswer, responses={204: {"model": None}})
    async def deployed(
        job: str,
        newer_than: Annotated[int, Query(ge=0)] = 0,
        wait_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 0.0,
    ) -> Response | DeployedPlanAnswer:
        """Return the deployed plan; 204 if there is none newer than a version.

        With `wait_s` the answer comes as soon as there is one, or after so many seconds.
        """
        plan = await next_plan(service, app.state.news, job, newer_than, wait_s)
        return Response(status_code=204) if plan is None else plan

    for kind in (RequestError, RequestValidationError, UnicodeEncodeError, OSError, HTTPException, Exception):
        app.add_exception_handler(kind, _refuse)
    return app


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    """Say in one line why not, whatever names there are in it."""
    path, headers = request.url.path[:60], None
    if isinstance(error, RequestValidationError):
        error = refusal(error.errors()[0])
    match error:
        case RequestError():
            line, status = str(error), error.status
        case UnicodeEncodeError():
            line, status = "body: has half a character; send text that is UTF-8", 422
        case OSError():
            logging.getLogger(__name__).error("%s %s: %s", request.method, path, error)
            line, status = f"jobs: {error.strerror or error}; nothing of the request is kept", 503
        case HTTPException():
            lines = {
                400: "body: is not JSON; send an object",
                404: f"path: {path} is not known; see /docs",
                405: f"method: {request.method} is not for {path}; see /docs",
            }
            status, headers = error.status_code, error.headers
            line = lines.get(status, error.detail)
        case _:
            line, status = f"server: {type(error).__name__}; its log says more, please report it", 500
    return JSONResponse({"detail": " ".join(line.splitlines())}, status, headers)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that takes connections, which wait until there is a server for them."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.create_server((host, port), family=family, backlog=1024)
    # An answer is sent in two parts; without this the second one waits 40 ms for word that the first arrived.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class Server(uvicorn.Server):
    """Serves an application until it is told to end."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        super().__init__(
            uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=_GRACE_S)
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the requests that wait for a plan, and then end as uvicorn does."""
        self._app.state.news.close()
        await super().shutdown(sockets)
