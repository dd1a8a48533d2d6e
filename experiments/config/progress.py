"""Progress bars on standard error, with the best value and the bound so far."""

from __future__ import annotations

import io
import sys
import time
from types import TracebackType
from typing import ClassVar, NoReturn, Self

from tqdm import tqdm

from schedsearch.modulo.result import Objective, Progress

_PLAIN_S = 10.0
"""Seconds from one plain line to the next."""


class _Lines(io.TextIOBase):
    """Standard error where it is no terminal: what a bar draws anew in place is a line of its own, once."""

    _last = ""

    def write(self, text: str) -> int:
        line = text.strip()
        if line and line != self._last:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
            self._last = line
        return len(text)


class _Bar:
    """A context manager whose bar is made at the first event, so that a wrong argument draws none.

    One bar is drawn at a time: the first event of another ends its line.
    """

    _drawn: ClassVar[_Bar | None] = None

    def __init__(self, name: str, form: str) -> None:
        self._name = name
        self._form = form
        self._bar: tqdm[NoReturn] | None = None
        self._begin = time.time()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = _Bar._drawn = None

    def write(self, line: str) -> None:
        """Print a line on standard output, above the bar."""
        tqdm.write(line)

    def _show(self, text: str, done: int, total: int | None) -> None:
        bar = self._bar
        if bar is None:
            if _Bar._drawn is not None:
                _Bar._drawn.__exit__(None, None, None)
            is_terminal = sys.stderr.isatty()
            bar = self._bar = tqdm(
                desc=self._name,
                total=total,
                bar_format=self._form,
                initial=done,
                postfix=text,
                file=None if is_terminal else _Lines(),
                dynamic_ncols=is_terminal,
                mininterval=0.1 if is_terminal else _PLAIN_S,
            )
            bar.start_t = self._begin
            _Bar._drawn = self
        bar.total = total
        bar.set_postfix_str(text, refresh=False)
        bar.update(done - bar.n)


class SearchBar(_Bar):
    """A bar that shows what a search has found and proved; called with each `Progress`."""

    def __init__(self, tick_ms: float, name: str = "search") -> None:
        super().__init__(name, "{desc}: {elapsed}{postfix}, {n_fmt} queries")
        self._tick_ms = tick_ms

    def __call__(self, progress: Progress) -> None:
        """Show one event."""
        best = "none yet" if progress.best is None else self._in_units(progress, progress.best)
        bound = self._in_units(progress, progress.bound)
        several = f" of {progress.micro_batches} micro-batches" if progress.phase == Objective.PERIOD else ""
        several = several if progress.micro_batches > 1 else ""
        phase = progress.phase.replace("_", " ")
        by = f", {progress.found_by}" if progress.found_by else ""
        self._show(f"{phase}{several} {best} (bound {bound}){by}", progress.queries, None)

    def _in_units(self, progress: Progress, value: int) -> str:
        if progress.phase == Objective.MEMORY:
            return f"{value} units"
        return f"{value * self._tick_ms:,.6g} ms"


class IterationBar(_Bar):
    """A bar that counts iterations, nobody knows of how many; called with each as it ends."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "{desc}: {n_fmt} iterations, {elapsed}{postfix}")
        self._done = 0

    def __call__(self, iteration: object) -> None:
        """Show one more, as text."""
        self._done += 1
        self._show(str(iteration), self._done, None)


class StepBar(_Bar):
    """A bar over a known number of steps; called with (what is done, how many are done, of how many)."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "{desc}: {percentage:3.0f}% {n_fmt}/{total_fmt}, {elapsed}{postfix}")

    def __call__(self, step: str, done: int, total: int) -> None:
        """Show one event."""
        self._show(step, done, total)


class PlanProgress:
    """A bar of the planner, then one of each search of a schedule."""

    def __init__(self) -> None:
        self._planner = StepBar("plan")
        self._searches: dict[str, SearchBar] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for bar in (self._planner, *self._searches.values()):
            bar.__exit__(kind, error, traceback)

    def planner(self, done: int, total: int, best_ms: float | None, bound_ms: float) -> None:
        """Show how many numbers of stages, GPUs and micro-batches are done, the best plan and the bound."""
        best = "none yet" if best_ms is None else f"{best_ms:,.6g} ms"
        self._planner(f"{best} (bound {bound_ms:,.6g} ms)", done, total)

    def search(self, name: str, tick_ms: float, progress: Progress) -> None:
        """Show one event of the search of a plan's schedule."""
        self._searches.setdefault(name, SearchBar(tick_ms, name))(progress)
