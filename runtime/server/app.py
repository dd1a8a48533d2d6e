"""The service over HTTP: one route for each request, JSON both ways, errors in one line.

Below it are the connections, and an end that waits for nobody.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from runtime.server import DEFAULT_MAX_BODY_MB
from runtime.server.access import BodyLimit, TokenNeeded
from runtime.server.answers import Deployed, DeployedPlanAnswer, JobPage, JobStatus, PlanAnswer
from runtime.server.errors import RequestError, refusal
from runtime.server.requests import ProfileUpload, Registration, StragglerMessage
from runtime.server.service import Service
from runtime.server.waiting import MOST_WAIT_S, News, at_once, deployed

OPEN_PATH = "/health"
"""What is answered to all."""

_SWITCH_S = 5e-4
"""For how long one thread may keep Python from others; its default of 5 ms is what a straggler may take."""

_GRACE_S = 10
"""Longest time for requests that are still being answered at the end."""


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
    app.add_middleware(BodyLimit, most=int(max_body_mb * 1e6))
    if token is not None:
        app.add_middleware(TokenNeeded, token=token, open_path=OPEN_PATH)
    _add_job_routes(app, service)
    _add_plan_routes(app, service)
    _add_error_handlers(app)
    return app


def _add_job_routes(app: FastAPI, service: Service) -> None:
    @app.get(OPEN_PATH)
    async def health() -> dict[str, str]:
        """Tell that the server is there; it needs no token."""
        return {"status": "ok"}

    @app.post("/jobs", status_code=201)
    def register(body: Registration) -> JobStatus:
        """Register a job."""
        return service.register(body)

    @app.get("/jobs")
    def jobs(after: str | None = None, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> JobPage:
        """List jobs in the order of registration."""
        return service.jobs(after, limit)

    @app.get("/jobs/{job}")
    def status(job: str) -> JobStatus:
        """Return a job's state, its missing blocks or its progress, and why it failed."""
        return service.status(job)

    @app.post("/jobs/{job}/profile")
    def upload(job: str, body: ProfileUpload) -> JobStatus:
        """Upload the profile of some or all blocks; the frontier is computed once all are there."""
        return service.upload(job, body.read())

    @app.delete("/jobs/{job}", status_code=204)
    def delete(job: str) -> None:
        """Forget a job."""
        service.delete(job)


def _add_plan_routes(app: FastAPI, service: Service) -> None:
    @app.get("/jobs/{job}/frontier")
    def frontier(job: str) -> JSONResponse:
        """Return the content of a `frontier.json`."""
        return JSONResponse(service.frontier(job))

    @app.get("/jobs/{job}/plan")
    def plan(
        job: str, deadline_ms: Annotated[float | None, Query(allow_inf_nan=False)] = None
    ) -> DeployedPlanAnswer | PlanAnswer | None:
        """Return the best plan for a deadline, by default the deployed one."""
        plans = service.deployments
        return plans.deployed(job) if deadline_ms is None else plans.plan(job, deadline_ms)

    @app.post("/jobs/{job}/straggler")
    async def straggler(job: str, body: StragglerMessage) -> Deployed:
        """Tell of a straggler."""
        return await at_once(service.alone, lambda: service.deployments.set_straggler(job, body))

    @app.get("/jobs/{job}/deployed", response_model=DeployedPlanAnswer, responses={204: {"model": None}})
    async def newest(
        job: str,
        device: int | None = None,
        newer_than: Annotated[int, Query(ge=0)] = 0,
        wait_s: Annotated[float, Query(ge=0, le=MOST_WAIT_S)] = 0.0,
    ) -> Response | DeployedPlanAnswer:
        """Return the deployed plan, or a device's part of it; 204 if there is none newer than a version.

        With `wait_s` the answer comes as soon as there is one, or after so many seconds.
        """
        found = await deployed(service, app.state.news, job, device, newer_than, wait_s)
        return Response(status_code=204) if found is None else found


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> JSONResponse:
        return _refusal(str(error), error.status)

    @app.exception_handler(RequestValidationError)
    async def wrong_field(request: Request, error: RequestValidationError) -> JSONResponse:
        found = refusal(error.errors()[0])
        return _refusal(str(found), found.status)

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

    @app.exception_handler(HTTPException)
    async def not_routed(request: Request, error: HTTPException) -> JSONResponse:
        path = request.url.path[:60]
        lines = {
            400: "body: is not JSON; send an object",
            404: f"path: {path} is not known; see /docs",
            405: f"method: {request.method} is not for {path}; see /docs",
        }
        return _refusal(lines.get(error.status_code, error.detail), error.status_code)


def _refusal(text: str, status: int) -> JSONResponse:
    """Say in one line why not, whatever names there are in it."""
    return JSONResponse({"detail": " ".join(text.splitlines())}, status)


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
