"""Independent searches in several processes; their rows are written each time that one ends."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import joblib
from joblib.externals.loky import get_reusable_executor

from experiments.config.command import Interrupted
from experiments.config.progress import StepBar
from placements.files import write_text

Answer = TypeVar("Answer")
AnyRow = TypeVar("AnyRow")


@dataclass(frozen=True)
class Found(Generic[AnyRow]):
    """What one search of a sweep brings.

    Attributes:
        rows: In any order.
        interrupted: Whether Ctrl-C ended it; then its rows do not count.
    """

    rows: tuple[AnyRow, ...]
    interrupted: bool = False


def collect(
    name: str,
    searches: Sequence[Callable[[], Found[AnyRow]]],
    num_processes: int | None,
    path: Path,
    to_csv: Callable[[Iterable[AnyRow]], str],
    place: Callable[[AnyRow], Any],
    in_short: Callable[[AnyRow], str],
) -> list[AnyRow]:
    """Run the searches, and write the rows that are there as CSV each time that one ends.

    Args:
        name: Shown beside the progress.
        searches: The longest first, if possible.
        num_processes: To use; None for one per processor.
        path: Of the CSV.
        to_csv: Its text.
        place: What the rows are sorted by.
        in_short: What is shown of a row as progress.

    Raises:
        Interrupted: By Ctrl-C; the rows of the searches that had ended are written.
    """
    rows: list[AnyRow] = []
    bar = StepBar(name)
    write_text(path, to_csv(rows))
    bar("starts", 0, len(searches))
    with bar, contextlib.closing(in_any_order(searches, num_processes)) as answers:
        try:
            for done, found in enumerate(answers, 1):
                if found.interrupted:
                    raise KeyboardInterrupt
                rows = sorted([*rows, *found.rows], key=place)
                write_text(path, to_csv(rows))
                bar(in_short(found.rows[-1]), done, len(searches))
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; the {len(rows)} rows found so far are in {path}") from None
    return rows


def in_any_order(
    calls: Sequence[Callable[[], Answer]], num_processes: int | None
) -> Generator[Answer, None, None]:
    """Yield what the calls return, as they end; the processes end with the iterator.

    Args:
        calls: Started in this order; what they hold is sent to other processes.
        num_processes: At least 1; with 1 the calls run in this process. None for one per processor.
    """
    number = min(num_processes or joblib.cpu_count(), len(calls)) or 1
    if number == 1:
        yield from (call() for call in calls)
        return
    pool = joblib.Parallel(
        n_jobs=number, backend="loky", return_as="generator_unordered", batch_size=1, pre_dispatch=number
    )
    try:
        yield from pool(joblib.delayed(_undisturbed)(call) for call in calls)
    finally:
        get_reusable_executor().shutdown(kill_workers=True)  # idle ones would stay for minutes


def _undisturbed(call: Callable[[], Answer]) -> Answer:
    """Call in a process that leaves Ctrl-C to the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return call()
