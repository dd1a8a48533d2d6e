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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, NoReturn

from experiments.config.commands import commands, tell_hydra
from schedsearch import put_first

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from experiments.config.declaring import Command
    from experiments.report.result import Result

Task = Callable[[], "Result | Mapping[str, float | str] | None"]
"""The work of a command with its options; it returns what it has found, or the figures of its record."""

log = logging.getLogger(__name__)

USER_ERROR = 2
"""Exit code for wrong input."""

FAILED = 1
"""Exit code when the task itself fails."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell gives it."""


class Interrupted(Exception):  # noqa: N818 - an end, not an error
    """The task was interrupted from the keyboard and has saved its results."""


class Failed(Exception):  # noqa: N818 - an end, like `Interrupted`
    """The task failed through no fault of the input; the message may have several lines."""


class _Pressed(KeyboardInterrupt):
    """Ctrl-C while a command loads.

    After KeyboardInterrupt itself inside `exec`, Python ends by the signal, whatever `sys.exit` says.
    """


class _CtrlC:
    """Remembers Ctrl-C while a command loads its libraries and composes its config.

    Python raises KeyboardInterrupt wherever it happens to be. In the middle of an import it may be lost, as
    in a destructor, or become an ImportError; OmegaConf makes an AttributeError of it. Tasks have their own
    ways to end and to keep what they have.
    """

    def __init__(self) -> None:
        self._remembers = False
        self._pressed = False

    @contextmanager
    def remembered(self) -> Iterator[None]:
        """Turn an error that a Ctrl-C became into KeyboardInterrupt; does nothing where Ctrl-C is ignored.

        Raises:
            KeyboardInterrupt: There was a Ctrl-C, and then an error.
        """
        self._remembers = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        self._watch()
        try:
            yield
        except Exception:
            self._raise_if_pressed()
            raise
        finally:
            self._unwatch()
            self._remembers = False

    @contextmanager
    def left_to_the_task(self) -> Iterator[None]:
        """Leave Ctrl-C inside to the task.

        Raises:
            KeyboardInterrupt: There was one before, and it was lost.
        """
        self._raise_if_pressed()
        self._unwatch()
        try:
            yield
        finally:
            self._watch()

    def _watch(self) -> None:
        self._pressed = False
        self._handle_with(self._note)

    def _unwatch(self) -> None:
        self._handle_with(signal.default_int_handler)

    def _handle_with(self, handler: Callable[[int, FrameType | None], object]) -> None:
        if self._remembers and threading.current_thread() is threading.main_thread():  # which alone may
            signal.signal(signal.SIGINT, handler)

    def _raise_if_pressed(self) -> None:
        if self._pressed:
            raise KeyboardInterrupt from None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pressed = True
        raise _Pressed


_CTRL_C = _CtrlC()  # of this process, as signals are


def run(name: str) -> None:
    """Compose the config of a command from the command line, run its task in Hydra, and exit.

    Everything heavy is imported here, so that Ctrl-C while it loads ends in a line too, and the task only
    when its options are right: help and wrong options do not wait for it. A
    `ValueError` of the task is the user's.
    """
    put_first()
    try:
        with _CTRL_C.remembered():
            _run_in_hydra(name)
    except KeyboardInterrupt:
        _exit(f"{name}: interrupted; every file that was written is complete", INTERRUPTED)
    except BrokenPipeError:  # whoever reads the output has gone, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(FAILED)
    except Exception as error:
        if (line := _users_error(error, name)) is None:
            raise
        _exit(f"{name}: error: {line}", USER_ERROR)


def _run_in_hydra(name: str) -> None:
    if commands()[name].needs_torch and importlib.util.find_spec("torch") is None:
        _exit(f"{name}: error: torch is not installed; pip install 'schedsearch[runtime]'", FAILED)
    from experiments.config.option_list import CONFIG, chosen_items, help_text
    from experiments.config.words import HELP, for_hydra

    words = for_hydra(name, sys.argv[1:])
    if not HELP.isdisjoint(words):
        print(help_text(name, words))  # noqa: T201
        return
    import hydra

    from experiments.config.composing import sweep_past_points_that_are_wrong

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # raise, so that the message can be made one line here
    sweep_past_points_that_are_wrong()
    tell_hydra(name, chosen_items(name, words))
    sys.argv[1:] = words
    hydra.main(version_base="1.3", config_path=str(CONFIG), config_name=name)(_Recorded(name))()


def _users_error(error: Exception, name: str) -> str | None:
    """Return the line for an error of the command line or of the config; None for any other."""
    from experiments.config.options import OptionError

    if isinstance(error, OptionError):
        return str(error)
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from experiments.config.composing import config_error

    match error:
        case HydraException() | OmegaConfBaseException() | ValueError():  # some of Hydra's are OSError too
            return config_error(error, name)
        case OSError():
            return _os_error(error)
    return None


@dataclass(frozen=True)
class _Recorded:
    """A task as Hydra calls it, in this process or in another, to which launchers send it by name.

    Attributes:
        name: Of the command.
    """

    name: str

    def __call__(self, config: DictConfig) -> float | None:
        """Run it, and write its record."""
        task = _task_of(commands()[self.name], config)
        with _CTRL_C.left_to_the_task():
            return _run_and_record(self.name, task, config)


def _task_of(command: Command, config: DictConfig) -> Task:
    """Return the task of a command; where an option is wrong, one that says so and waits for no imports."""
    try:
        options = command.read(config, command.record)
    except ValueError as error:
        return partial(_refuse, error)
    return partial(imported(command.task).task, options)


def _refuse(error: ValueError) -> NoReturn:
    raise error


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


def _run_and_record(name: str, task: Task, config: DictConfig) -> float | None:
    """Run a task and write its record; in a sweep, unless it is done already, and go on if it fails.

    Returns:
        What a sweeper minimizes, without end where the task failed; None where the command has no objective.
    """
    from experiments.config import run_record
    from experiments.config.run_record import DONE, REJECTED, RunRecord

    record, sweep = RunRecord.of_this_run(name, config), run_record.sweep_directory()
    objective = commands()[name].objective
    if sweep and (before := record.done_before()) is not None:
        log.info("this point was done before with the same inputs and version; it is not run again")
        return before.number(objective)
    if sweep:
        record.save()
    try:
        if record.status == REJECTED:
            raise ValueError(record.message)
        record = replace(record, status=DONE, message="", figures=_carried_out(task))
        record.save()
        return record.number(objective)
    except (Exception, KeyboardInterrupt) as error:
        status, line, code = _end_of(error)
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


def _carried_out(task: Task) -> Mapping[str, float | str]:
    """Run a task, write and print its result, and return the figures.

    Raises:
        Interrupted: Ctrl-C ended the task before all was found.
        Failed: The task has not done all that was asked for.
    """
    from experiments.config.run_record import output_directory
    from experiments.report.result import Result

    found, directory = task(), output_directory()
    if not isinstance(found, Result):
        return found or {}
    found.write(directory)
    found.show(directory)
    if found.interrupted:
        raise Interrupted(f"interrupted; {found.interrupted} {directory}")
    if found.failed:
        raise Failed(found.failed)
    return found.figures


def _end_of(error: BaseException) -> tuple[str, str, int]:
    """Return how an error ends a task: the status of its record, the message and the exit code."""
    from experiments.config import run_record

    match error:
        case ValueError():
            return run_record.REJECTED, (str(error) or type(error).__name__).splitlines()[0], USER_ERROR
        case OSError():
            return run_record.REJECTED, _os_error(error), USER_ERROR
        case Interrupted():
            return run_record.INTERRUPTED, str(error), INTERRUPTED
        case KeyboardInterrupt():
            return run_record.INTERRUPTED, "interrupted; every file that was written is complete", INTERRUPTED
        case Failed():
            return run_record.FAILED, str(error), FAILED
    return run_record.FAILED, f"{type(error).__name__}: {error}", FAILED


def _os_error(error: OSError) -> str:
    return (
        f"{error.filename or 'a file'}: {error.strerror or error}; choose another path, "
        "as with hydra.run.dir or hydra.sweep.dir"
    )


def _exit(line: str, code: int) -> NoReturn:
    print(line, file=sys.stderr)  # noqa: T201
    sys.exit(code)
