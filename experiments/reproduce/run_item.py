"""An item made case by case, and all that is known of it then: rows, trends and what is as claimed.

The module writes the file of kept cases only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments.reproduce.item import Item, Row, Trend
from experiments.reproduce.kept_cases import KeptCases, MadeCase, dependences
from experiments.reproduce.processes import in_any_order

Report = Callable[[str, int, int], None]
"""Told a case that is made now, how many are done, and of how many."""

LONG_S = 2.0
"""CPU seconds of a case after which other processes make the next ones too; to start these takes as long."""


@dataclass(frozen=True)
class MadeItem:
    """An item and its cases, all of them or those before an interruption.

    Attributes:
        item: The item.
        options: With which it was made.
        of: What its rows depend on; see `experiments.reproduce.kept_cases.dependences`.
        num_cases: Number of cases of the whole run.
        cases: The cases that are made, in their order.
        kept: How many of them an earlier run made.
        is_anew: Whether there were cases of other options, inputs or code, which are gone.
    """

    item: Item
    options: Any
    of: dict[str, Any]
    num_cases: int
    cases: tuple[MadeCase, ...]
    kept: int
    is_anew: bool

    @property
    def is_whole(self) -> bool:
        """Whether no case is missing."""
        return len(self.cases) == self.num_cases

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of all cases."""
        return tuple(row for case in self.cases for row in case.rows)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all cases, also of those that an earlier run made."""
        return sum(case.cpu_s for case in self.cases)

    @property
    def trends(self) -> tuple[Trend, ...]:
        """What the paper concludes; nothing of an item of which only a part is made."""
        return self.item.trends(self.rows) if self.is_whole and self.rows else ()

    @property
    def compared(self) -> tuple[Row, ...]:
        """The rows of which there are both values, and of which something is claimed of the values."""
        return self.item.compared(self.rows)

    @property
    def not_as_claimed(self) -> tuple[Row, ...]:
        """The rows that are further from the paper than is claimed."""
        return tuple(row for row in self.rows if not self.item.is_as_claimed(row))


def run_item(
    item: Item,
    options: Any,
    folder: Path,
    report: Report,
    *,
    after_case: Callable[[MadeItem], None],
    num_processes: int | None = 1,
) -> MadeItem:
    """Make the cases of an item that are not in its folder yet.

    Args:
        item: To make.
        options: Options of its type.
        folder: Where the cases are kept, in ``NAME_cases.json``.
        report: Told of each case.
        after_case: Given what is made so far, each time that a case was made.
        num_processes: Processes that make cases once one took long; None for one per processor.

    Raises:
        ValueError: An option or an input is wrong.
        KeyboardInterrupt: From the keyboard; what was made is kept.
    """
    names = tuple(item.cases(options))
    kept = KeptCases(folder / f"{item.name}_cases.json", dependences(item, options))
    is_anew = kept.read()
    before = len(kept.cases)

    def made() -> MadeItem:
        cases = tuple(kept.cases[name] for name in names if name in kept.cases)
        return MadeItem(item, options, kept.of, len(names), cases, before, is_anew)

    missing = [name for name in names if name not in kept.cases]
    with contextlib.closing(_made_cases(item, options, tuple(missing), num_processes)) as cases:
        while missing:
            report(missing[0], len(names) - len(missing), len(names))
            case = next(cases)
            kept.add(case)
            after_case(made())
            missing.remove(case.name)
    if names:
        report("all", len(names), len(names))
    return made()


def _made_cases(
    item: Item, options: Any, names: Sequence[str], num_processes: int | None
) -> Generator[MadeCase, None, None]:
    """Yield the cases as they end: one after the other until one takes long, then from several processes."""
    for done, name in enumerate(names, 1):
        case = _made_case(item, options, name)
        yield case
        if case.cpu_s > LONG_S:
            yield from in_any_order(
                [partial(_made_case, item, options, name) for name in names[done:]], num_processes
            )
            return


def _made_case(item: Item, options: Any, name: str) -> MadeCase:
    began = _cpu_s()
    rows = item.rows(options, name)
    return MadeCase(name, _cpu_s() - began, rows)


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])
