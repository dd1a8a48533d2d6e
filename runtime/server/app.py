"""The service over HTTP: one route for each request, JSON both ways, errors in one line.

Requests that wait for a job's next plan sleep until there is news of it, and need no thread. At the end the
server answers them all, and waits for nobody.
"""

from __future__ import annotations

import asyncio
import logging
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

from runtime.server.access import OPEN_PATH, Gate
from runtime.server.bodies import DeployedPlanAnswer, NotYetError, RequestError, refusal
from runtime.server.service import Service

MAX_WAIT_S = 60.0
"""How long a request may wait for a plan."""

_MIN_WAIT_S = 1e-3
"""Clocks that differ a little must not make a request that waits ask without a pause."""

_GRACE_S = 10
"""Longest time for requests that are still being answered at the end."""


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
