"""The service over HTTP: one route for each request, JSON both ways, errors in one line.

Below it are the connections, and an end that waits for nobody.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError

from runtime.server.access import TokenNeeded, read_body
from runtime.server.requests import (
    DEFAULT_MAX_BODY_MB,
    RequestError,
    read_json,
    read_message,
    read_profile,
    read_registration,
)
from runtime.server.service import Service
from runtime.server.waiting import MOST_WAIT_S, News, at_once, deployed

_TOO_LARGE = 413

OPEN_PATH = "/health"
"""What is answered to all."""

_SWITCH_S = 5e-4
"""For how long one thread may keep Python from others; its default of 5 ms is what a straggler may take."""

_GRACE_S = 10
"""Longest time for requests that are still being answered at the end."""


async def _body(request: Request) -> Any:
    """Return the data of a request, whatever it says its type is: curl sends JSON as a form."""
    return read_json(await read_body(request, request.app.state.max_body_bytes))


Body = Annotated[Any, Depends(_body)]
Wait = Annotated[float, Query(ge=0, le=MOST_WAIT_S)]


def create_app(
    service: Service, token: str | None = None, max_body_mb: float = DEFAULT_MAX_BODY_MB
) -> FastAPI:
    """Return the application; the service is closed when it shuts down.

    Args:
        service: What it answers with.
        token: What every request but `OPEN_PATH` must bear; None if all may ask.
        max_body_mb: Millions of bytes that a request may carry.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.news = News(asyncio.get_running_loop())
        service.on_news = app.state.news.tell
        yield
        service.close()

    app = FastAPI(title="schedsearch", description="Frontiers and deployed plans.", lifespan=lifespan)
    app.state.max_body_bytes = int(max_body_mb * 1e6)
    if token is not None:
        app.add_middleware(TokenNeeded, token=token, open_path=OPEN_PATH)
    _add_job_routes(app, service)
    _add_plan_routes(app, service)
    _add_error_handlers(app)
    return app


def _add_job_routes(app: FastAPI, service: Service) -> None:
    @app.get(OPEN_PATH)
    async def health() -> JSONResponse:
        """Tell that the server is there; it needs no token."""
        return JSONResponse({"status": "ok"})

    @app.post("/jobs", status_code=201)
    def register(body: Body) -> JSONResponse:
        """Register a job: `{"schedule": <schedule.json>, "num_plans": 200}`."""
        return JSONResponse(service.register(read_registration(body)), 201)

    @app.get("/jobs")
    def jobs(after: str | None = None, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> JSONResponse:
        """List jobs in the order of registration; `next`, if not null, is the next page's `after`."""
        return JSONResponse(service.jobs(after, limit))

    @app.get("/jobs/{job}")
    def status(job: str) -> JSONResponse:
        """Return a job's state, its missing blocks or its progress, and why it failed."""
        return JSONResponse(service.status(job))

    @app.post("/jobs/{job}/profile")
    def upload(job: str, body: Body) -> JSONResponse:
        r"""Upload the profile of some or all blocks; the frontier is computed once all are there.

        `{"blocking_power_w": 60, "csv": "block,frequency,time,energy\n..."}` (MHz, s, J), or
        `"blocks": {"F0": [{"clock_mhz": 1410, "time_ms": 10.5, "energy_mj": 2500}]}` instead of `csv`.
        """
        return JSONResponse(service.upload(job, read_profile(body)))

    @app.delete("/jobs/{job}", status_code=204)
    def delete(job: str) -> Response:
        """Forget a job."""
        service.delete(job)
        return Response(status_code=204)


def _add_plan_routes(app: FastAPI, service: Service) -> None:
    @app.get("/jobs/{job}/frontier")
    def frontier(job: str) -> JSONResponse:
        """Return the content of a `frontier.json`."""
        return JSONResponse(service.frontier(job))

    @app.get("/jobs/{job}/plan")
    def plan(job: str, deadline_ms: float | None = None) -> JSONResponse:
        """Return the best plan for a deadline, by default the deployed one."""
        if deadline_ms is None:
            return JSONResponse(service.deployed(job))
        if not math.isfinite(deadline_ms):
            raise RequestError("deadline_ms: is not a number; give a finite one")
        return JSONResponse(service.plan(job, deadline_ms))

    @app.post("/jobs/{job}/straggler")
    async def straggler(job: str, body: Body) -> JSONResponse:
        """Tell of a straggler: `{"id": 3, "delay_s": 0, "degree": 1.2}`; degree 1 is back to normal."""
        message = read_message(body)
        return JSONResponse(await at_once(service.alone, lambda: service.set_straggler(job, message)))

    @app.get("/jobs/{job}/deployed")
    async def newest(
        job: str,
        device: int | None = None,
        newer_than: Annotated[int, Query(ge=0)] = 0,
        wait_s: Wait = 0.0,
    ) -> Response:
        """Return the deployed plan, or a device's part of it; 204 if there is none newer than a version.

        With `wait_s` the answer comes as soon as there is one, or after so many seconds.
        """
        found = await deployed(service, app.state.news, job, device, newer_than, wait_s)
        return Response(status_code=204) if found is None else JSONResponse(found)


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> JSONResponse:
        return _refusal(str(error), error.status)

    @app.exception_handler(RequestValidationError)
    async def wrong_parameter(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        line = f"{first['loc'][-1]}: {first['msg']}; see /docs"
        return _refusal(line, 422)

    @app.exception_handler(UnicodeEncodeError)
    async def half_a_character(request: Request, error: UnicodeEncodeError) -> JSONResponse:
        return _refusal("body: has half a character; send text that is UTF-8", 422)

    @app.exception_handler(SQLAlchemyError)
    async def not_kept(request: Request, error: SQLAlchemyError) -> JSONResponse:
        reason = str(getattr(error, "orig", error)).splitlines()[0]
        logging.getLogger(__name__).error("%s %s: %s", request.method, request.url.path, reason)
        return _refusal(f"database: {reason}; nothing of the request is kept", 503)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        return _refusal(f"server: {type(error).__name__}; its log says more, please report it", 500)

    @app.exception_handler(404)
    async def no_such_path(request: Request, error: Exception) -> JSONResponse:
        return _refusal(f"path: {request.url.path[:60]} is not known; see /docs", 404)

    @app.exception_handler(405)
    async def no_such_method(request: Request, error: Exception) -> JSONResponse:
        line = f"method: {request.method} is not for {request.url.path[:60]}; see /docs"
        return _refusal(line, 405)


def _refusal(text: str, status: int) -> JSONResponse:
    """Say in one line why not, whatever names there are in it."""
    # What is too large is not read to its end, so nothing else can come after it.
    headers = {"Connection": "close"} if status == _TOO_LARGE else None
    return JSONResponse({"detail": " ".join(text.splitlines())}, status, headers)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that takes connections, which wait until there is a server for them.

    Raises:
        OSError: The address cannot be used.
    """
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.create_server((host, port), family=family, backlog=1024)
    # An answer is sent in two parts; without this the second one waits 40 ms for word that the first arrived.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class Server(uvicorn.Server):
    """Serves an application until it is told to end.

    Args:
        app: What to serve.
        log_level: As uvicorn's.
    """

    def __init__(self, app: FastAPI, log_level: str = "warning") -> None:
        """Configure uvicorn."""
        self._app = app
        super().__init__(
            uvicorn.Config(app, log_level=log_level, access_log=False, timeout_graceful_shutdown=_GRACE_S)
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the requests that wait for a plan, and then end as uvicorn does."""
        self._app.state.news.close()
        await super().shutdown(sockets)


def serve(app: FastAPI, listener: socket.socket) -> None:
    """Serve in this process, as all that it does, until Ctrl-C or SIGTERM."""
    sys.setswitchinterval(_SWITCH_S)
    Server(app).run(sockets=[listener])
