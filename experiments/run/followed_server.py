"""A run that follows the plans of a server: registered there, with its profile or without.

The server may be one that is there, or one that is started for the run.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from experiments.config.command import Failed
from experiments.run.options import RuntimeOptions
from placements import Profile
from placements.forms.texts import write_json
from runtime.plans.plan_client import JOB_VARIABLE, SERVER_VARIABLE, ServerClient, ServerError
from schedsearch.schedule import Schedule

OWN = "own"
"""A value of ``runtime.server``: one is started for the run."""

log = logging.getLogger(__name__)


@contextmanager
def followed_server(
    options: RuntimeOptions, schedule: Schedule, profile: Profile | None, directory: Path
) -> Iterator[None]:
    """Register the schedule, and let the processes that are started inside follow its plans.

    At the end the frontier that the server has is in ``served_frontier.json``.

    Raises:
        Failed: The server is not there, or refuses the job.
    """
    if options.server is None:
        yield
        return
    with ExitStack() as at_end:
        try:
            url = at_end.enter_context(_started(directory)) if options.server == OWN else options.server
            client = ServerClient(url)
            job = client.register(schedule.per_micro_batch)
            if profile is not None and not options.profile_online:
                client.upload(job, profile)
                client.wait_until_ready(job)
        except ServerError as error:
            raise Failed(f"runtime.server: {error}") from None
        log.info("%-12s%s, job %s; tell of a straggler:", "server", url, job)
        log.info("""  curl -d '{"id": 0, "degree": 1.2}' %s/jobs/%s/straggler""", url, job)
        with patch.dict(os.environ, {SERVER_VARIABLE: url, JOB_VARIABLE: job}):
            yield
        try:
            write_json(directory / "served_frontier.json", client.frontier(job))
        except ServerError as error:
            log.warning("the server has no frontier: %s", error)


@contextmanager
def _started(directory: Path) -> Iterator[str]:
    """Start a server on a free port and return its URL.

    Raises:
        Failed: It does not start; the message is its own line.
    """
    words = ["runtime.server", "--port", "0", "--jobs", str(directory / "jobs"), "--workers", "1"]
    pipe = subprocess.PIPE
    server = subprocess.Popen([sys.executable, "-m", *words], text=True, stdout=pipe, stderr=pipe)
    assert server.stdout is not None and server.stderr is not None
    try:
        line = server.stdout.readline()
        if not line:
            raise Failed(f"runtime.server: {server.stderr.read().strip().splitlines()[-1]}")
        yield line.split()[1].rstrip(",")
    finally:
        server.terminate()
        server.communicate()
