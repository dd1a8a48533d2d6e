"""One line for each error of this project, in processes that torchrun or another launcher started.

All processes of a run raise the same error. Their tracebacks stacked up hide it, and most of their lines are
the project's own. Other errors, as those of a training loop, keep their tracebacks.
"""

from __future__ import annotations

import sys
import traceback
from itertools import takewhile
from pathlib import Path
from types import TracebackType

_PACKAGES = ("placements", "schedsearch", "runtime", "experiments")
_FOLDERS = tuple(f"{Path(__file__).parents[2] / package}/" for package in _PACKAGES)


def print_errors_in_one_line() -> None:
    """Let errors of this project's types that end the process have one line; not in Python's dev mode."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _is_own(error) and not sys.flags.dev_mode:
            sys.stderr.write(f"{error_line(error)}\n")
        else:
            before(kind, error, trace)

    sys.excepthook = hook


def error_line(error: BaseException) -> str:
    """Return an error's message with the user's lines: the one that called us, and the one where it began."""
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    line = f"{type(error).__name__}: {error}"
    for frame in list(takewhile(_is_of_user, traceback.extract_tb(error.__traceback__)))[-1:]:
        line = f"{Path(frame.filename).name}:{frame.lineno}: {line}"
    began = [] if _is_own(first) else traceback.extract_tb(first.__traceback__)
    for frame in list(filter(_is_of_user, began))[-1:]:
        line += f" ({Path(frame.filename).name}:{frame.lineno})"
    return line


def _is_own(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in _PACKAGES


def _is_of_user(frame: traceback.FrameSummary) -> bool:
    return "site-packages" not in frame.filename and not frame.filename.startswith((*_FOLDERS, "<"))
