"""A Hydra command whose user errors are one line and exit code 2, never a traceback."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from experiments.config.declaring import command_of, tell_hydra
from schedsearch import put_first

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from experiments.report.result import Result

log = logging.getLogger(__name__)

USER_ERROR = 2
"""Exit code for wrong input."""

FAILED = 1
"""Exit code when the task itself fails."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell gives it."""

_COLLECTED = (100_000, 50, 100)
"""Thresholds of garbage collection: with the usual ones it takes half of the time of large schedules."""

_WHOLE = "interrupted; every file that was written is complete"


class Interrupted(Exception):  # noqa: N818 - an end, not an error
    """The task was interrupted from the keyboard and has saved its results."""


class Failed(Exception):  # noqa: N818 - an end, like `Interrupted`
    """The task failed through no fault of the input; the message may have several lines."""


def run(name: str) -> None:
    """Compose the config of a command from the command line, run its task in Hydra, and exit.

    Everything heavy is imported late, and the task only when its options are right: help and wrong options
    do not wait for it. A `ValueError` of the task is the user's. Ctrl-C ends the process at once while
    libraries load and the config is composed: they would lose a KeyboardInterrupt, or make another error of
    it. Tasks have it for themselves, to keep what they have.
    """
    put_first()
    gc.set_threshold(*_COLLECTED)

    def end(number: int, frame: FrameType | None) -> None:
        print(f"{name}: {_WHOLE}", file=sys.stderr, flush=True)  # noqa: T201
        os._exit(INTERRUPTED)

    try:
        with on_ctrl_c(end):
            _run_in_hydra(name)
    except BrokenPipeError:  # whoever reads the output has gone, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(FAILED)
    except Exception as error:
        if (line := _mistake(error, name)) is None:
            raise
        _exit(f"{name}: error: {line}", USER_ERROR)


@contextmanager
def on_ctrl_c(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Handle Ctrl-C so meanwhile; not where it is ignored, as after nohup, nor outside of the main thread."""
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_in_hydra(name: str) -> None:
    if command_of(name).needs_torch and importlib.util.find_spec("torch") is None:
        _exit(f"{name}: error: torch is not installed; pip install 'schedsearch[runtime]'", FAILED)
    from experiments.config.option_list import CONFIG, chosen_items, help_text
    from experiments.config.words import HELP, for_hydra

    words = for_hydra(name, sys.argv[1:])
    if not HELP.isdisjoint(words):
        print(help_text(name, words))  # noqa: T201
        return
    import hydra

    from experiments.config.ray_launcher import register_launcher

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # raise, so that the message can be made one line here
    tell_hydra(name, chosen_items(name, words))
    register_launcher()
    sys.argv[1:] = words
    main = hydra.main(version_base="1.3", config_path=str(CONFIG), config_name=name)
    main(partial(_run_and_record, name))()


@cache
def imported(module: str) -> ModuleType:
    """Import a module, once.

    Garbage collection leaves out all that is imported, here and later, since it stays until the process ends:
    to look through it again and again takes a fifth of a short search.
    """
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


def _run_and_record(name: str, config: DictConfig) -> float | None:
    """Run the task of a command, in this process or in one of a launcher, and write its record.

    The task's modules are imported only if its options are right. In a sweep, points done
    already are not run, and a point that fails does not end it.

    Returns:
        The objective of a sweeper, infinite where the task failed; None where the command has no objective.
    """
    from experiments.config import run_record

    record, sweep = run_record.RunRecord.of_this_run(name, config), run_record.sweep_directory()
    command = command_of(name)
    objective = command.objective
    if sweep and (before := record.done_before()) is not None:
        log.info("this point was done before with the same inputs and version; it is not run again")
        return before.number(objective)
    if sweep:
        record.save()
    try:
        options = command.read(config, command.record)
        task: Callable[[object], Result] = imported(command.task).task
        with on_ctrl_c(signal.default_int_handler):
            result, directory = task(options), run_record.output_directory()
            result.write(directory)
            result.show(directory)
        if result.interrupted:
            raise Interrupted(f"interrupted; {result.interrupted} {directory}")
        if result.failed:
            raise Failed(result.failed)
        record = replace(record, status=run_record.DONE, message="", figures=result.figures)
        record.save()
        return record.number(objective)
    except (Exception, KeyboardInterrupt) as error:
        status, line, code = _end_of(error, name)
        is_bug = code == FAILED and not isinstance(error, Failed)
        if sweep or code != USER_ERROR:  # where the options of a single run are wrong it leaves nothing
            replace(record, status=status, message=line).save()
        if is_bug and not sweep:
            raise
        if not sweep or code == INTERRUPTED:
            # Leaves Hydra by SystemExit, which it passes on, where it would add lines of its own to an error.
            line += f"; {run_record.how_to_resume(sweep)}" if sweep else ""
            _exit(f"{name}: {'error: ' if code == USER_ERROR else ''}{line}", code)
        log.error("%s", line, exc_info=is_bug)
        return math.inf if objective else None


def _end_of(error: BaseException, name: str) -> tuple[str, str, int]:
    """Return how an error ends a task: the status of its record, the message and the exit code."""
    from experiments.config import run_record

    if (line := _mistake(error, name)) is not None:
        return run_record.REJECTED, line, USER_ERROR
    match error:
        case Interrupted():
            return run_record.INTERRUPTED, str(error), INTERRUPTED
        case KeyboardInterrupt():
            return run_record.INTERRUPTED, _WHOLE, INTERRUPTED
        case Failed():
            return run_record.FAILED, str(error), FAILED
    return run_record.FAILED, f"{type(error).__name__}: {error}", FAILED


def _mistake(error: BaseException, name: str) -> str | None:
    """Return the line for a user's mistake; None for any other error."""
    is_hydras = type(error).__module__.startswith(("hydra.", "omegaconf."))  # some are OSError or ValueError
    if is_hydras or str(error).startswith("Config group override must be"):
        from experiments.config.words import config_error

        return config_error(error, name)
    match error:
        case ValueError():
            return (str(error) or type(error).__name__).splitlines()[0]
        case OSError():
            remedy = "choose another path, as with hydra.run.dir or hydra.sweep.dir"
            return f"{error.filename or 'a file'}: {error.strerror or error}; {remedy}"
    return None


def _exit(line: str, code: int) -> NoReturn:
    print(line, file=sys.stderr)  # noqa: T201
    sys.exit(code)
