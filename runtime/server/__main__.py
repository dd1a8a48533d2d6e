"""The command line: ``python -m runtime.server --port 8080 --jobs FOLDER``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn


def main(arguments: list[str] | None = None) -> None:
    """Serve until Ctrl-C or SIGTERM; one line and exit code 2 if the arguments cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m runtime.server",
        description="Keep the frontiers of jobs, and deploy the plan for the worst straggler.",
        epilog="Requests must bear the token in SCHEDSEARCH_SERVER_TOKEN, if there is one.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="0 for any free one (default %(default)s)")
    parser.add_argument("--jobs", type=Path, required=True, help="folder; made if it is not there")
    parser.add_argument(
        "--workers",
        type=int,
        default=max((os.cpu_count() or 1) - 1, 1),
        help="frontiers computed at once (default: one less than there are processors, here %(default)s)",
    )
    parsed = parser.parse_args(arguments)
    if parsed.workers < 1:
        _exit(f"workers: {parsed.workers} is not at least 1", 2)
    if not 0 <= parsed.port < 1 << 16:
        _exit(f"port: {parsed.port} is not a port; give 1 to 65535, or 0 for any free one", 2)
    try:
        from runtime.server.app import Server, create_app, listen, read_token
        from runtime.server.service import Service
    except ImportError as error:
        _exit(f"{error.name} is not installed; pip install 'schedsearch[server]'", 1)
    try:
        token = read_token()
        listener = listen(parsed.host, parsed.port)
        service = Service(parsed.jobs, parsed.workers)
    except ValueError as error:
        _exit(str(error), 2)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]  # Python adds the address, which is named already
        _exit(f"port: {parsed.host}:{parsed.port} cannot be used ({reason}); choose another", 2)
    port = listener.getsockname()[1]
    sys.stdout.write(f"runtime.server: http://{parsed.host}:{port}, jobs in {parsed.jobs}\n")
    sys.stdout.flush()
    Server(create_app(service, token)).run(sockets=[listener])


def _exit(line: str, code: int) -> NoReturn:
    sys.stderr.write(f"runtime.server: error: {line}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
