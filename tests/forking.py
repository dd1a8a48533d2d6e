"""Commands as processes of their own that start in no time: forked from one that has imported everything.

The server imports what the commands import and computes nothing. For each request, a line of JSON, it forks;
the child becomes ``python -m MODULE ARGUMENTS``, from the working directory, environment and files that the
request names, and ends as that would. Whether a fresh process can import the command is not seen here: the
tests that start one say so.
"""

from __future__ import annotations

import atexit
import base64
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = (
    "torch.fx.experimental.symbolic_shapes",  # torch needs it for the first gradient
    "z3",
    "scipy.optimize",
    "hydra.main",
    "hydra._internal.hydra",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_pdf",
    "matplotlib.backends.backend_svg",
    "fontTools.subset",
    "PIL.PngImagePlugin",
    "bokeh.embed",
    "bokeh.plotting",
    "ortools.math_opt.python.mathopt",
    "hydra.experimental.compose",
    "experiments.config.run_record",
    "experiments.cluster.task",
    "experiments.compare.task",
    "experiments.plan.task",
    "experiments.layout.task",
    "experiments.replay.task",
    "experiments.reproduce.task",
    "experiments.run.task",
)
"""Heavy modules; those that a test replaces by files of its own are not among them."""


NO_IMAGE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
)
"""Content of a picture's files where the command does not draw: a PNG of one white dot."""


class ForkServer:
    """The server, seen from the tests.

    Args:
        root: Where it starts; modules are found from there.

    Attributes:
        cpu_s: CPU seconds of all commands that were run.
    """

    cpu_s = 0.0

    def __init__(self, root: Path) -> None:
        """Start it; it is ready when it answers."""
        self._folder = tempfile.TemporaryDirectory(prefix="forked_")
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=root,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, module: str, arguments: list[str], cwd: Path, timeout_s: float, draws: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a module to its end, and return its output.

        Args:
            module: Run as ``python -m`` does.
            arguments: Of its command line.
            cwd: Its working directory.
            timeout_s: After so many seconds it is killed, with all its processes.
            draws: Whether its pictures become images, which takes longer than most commands; otherwise
                each is drawn on its axes, and its files have one white dot.

        Raises:
            subprocess.TimeoutExpired: It was.
        """
        outputs = [Path(self._folder.name) / name for name in ("stdout.txt", "stderr.txt")]
        request = {
            "module": module,
            "arguments": arguments,
            "cwd": str(cwd),
            "environment": dict(os.environ),
            "outputs": [str(path) for path in outputs],
            "timeout_s": timeout_s,
            "draws": draws,
        }
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status, cpu_s = json.loads(self._process.stdout.readline())
        ForkServer.cpu_s += cpu_s
        printed, errors = (path.read_text() for path in outputs)
        if status is None:
            raise subprocess.TimeoutExpired(module, timeout_s, printed, errors)
        return subprocess.CompletedProcess([module, *arguments], status, printed, errors)

    def stop(self) -> None:
        """End it."""
        self._process.communicate()
        self._folder.cleanup()


def _serve() -> None:
    """Answer each line with an exit status, null for a child that had to be killed, and its CPU seconds."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            answers.close()
            _become(request)
        answers.write(json.dumps(_wait(child, request["timeout_s"])) + "\n")
        answers.flush()


def _become(request: dict[str, Any]) -> NoReturn:
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, path in enumerate(request["outputs"], start=1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, number)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    if not request["draws"]:
        canvas = sys.modules["schedsearch.figures.canvas"]
        canvas._images = lambda figure, *forms: dict.fromkeys(forms, NO_IMAGE)  # type: ignore[attr-defined]
    sys.path[0] = request["cwd"]
    sys.argv = [request["module"], *request["arguments"]]
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        assert end.code is None or isinstance(end.code, int), "all that is imported exits with a number"
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does at its end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # Taking apart all that was imported is slow.


def _wait(child: int, timeout_s: float) -> tuple[int | None, float]:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    usage = os.wait4(child, 0)[2]
    return None, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    _serve()
