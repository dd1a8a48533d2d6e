"""Notes which lines of the four packages run, in every Python process that has this folder in PYTHONPATH.

As a script it prints their share.
slipcover marks the lines, which costs a fifth of what tracing does before Python 3.12. Each process writes at
its end what it ran and those that it was forked from had not, to a folder in the project's: that of the
variable LINES_RUN. One that is killed writes nothing.
"""

import atexit
import json
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

from slipcover import FileMatcher, ImportManager, Slipcover
from slipcover.importer import SlipcoverLoader

PACKAGES = ["placements", "schedsearch", "runtime", "experiments"]
FOLDER = Path(os.environ["LINES_RUN"]).resolve()
SOURCES = [str(FOLDER.parent / name) for name in PACKAGES]


def save() -> None:
    """Write the lines that were not written before."""
    seen = lines._get_newly_seen()
    for file, earlier in lines.all_seen.items():
        seen[file] |= earlier
    lines.all_seen.clear()
    if seen:
        text = json.dumps({file: sorted(each) for file, each in seen.items()})
        path = FOLDER / f"{os.getpid()}_{time.monotonic_ns()}"
        path.write_text(text)
        path.rename(path.with_suffix(".json"))  # whole, also if it is killed meanwhile


def save_and_exit(status: int, exit_=os._exit) -> NoReturn:
    """End as forked processes do, without the handlers of atexit."""
    save()
    exit_(status)


def report() -> None:
    """Print which share of the lines of each package ran, and of all."""
    lines = Slipcover(source=SOURCES)
    for path in FOLDER.glob("*.json"):
        for file, seen in json.loads(path.read_text()).items():
            lines.all_seen[file].update(seen)
    files = lines.get_coverage()["files"].items()
    for name, folder in [*zip(PACKAGES, SOURCES, strict=True), ("total", FOLDER.parent)]:
        found = [each for file, each in files if Path(file).absolute().is_relative_to(folder)]
        run, missing = (sum(len(each[key]) for each in found) for key in ("executed_lines", "missing_lines"))
        sys.stdout.write(f"{name:12} {run / (run + missing):6.1%} of {run + missing} lines run\n")


if __name__ == "__main__":
    report()
else:
    lines = Slipcover(d_miss_threshold=-1)  # never: a Ctrl-C while marks are taken out ends in a SystemError
    ImportManager(lines, FileMatcher(SOURCES)).__enter__()
    SlipcoverLoader.get_code = lambda self, name: lines.instrument(self.orig_loader.get_code(name))  # for -m
    os._exit = save_and_exit
    os.register_at_fork(before=lines.lock.acquire, after_in_parent=lines.lock.release)
    os.register_at_fork(after_in_child=lines.lock.release)
    os.register_at_fork(after_in_child=lines.signal_child_process)
    atexit.register(save)
