"""Progress bars on standard error, with the best value and the bound so far: of commands, and of calls."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache, wraps
from typing import Any, ClassVar, NoReturn, Self

from tqdm import tqdm

from schedsearch.core.answer import SearchProgress
from schedsearch.core.objective import Objective

_PLAIN_S = 10.0
"""Seconds from one plain line to the next."""

_CALL_S = 1.0
"""Seconds after which a call from Python draws its first bar."""


def _is_seen() -> bool:
    """Return whether standard error is a terminal or a notebook, where a line can be drawn again in place."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel") or getattr(sys.stderr, "isatty", bool)()


class _Lines(io.TextIOBase):
    """Standard error without a terminal: each text of a bar is a line of its own, without repeats."""

    _last = ""

    def write(self, text: str) -> int:
        line = text.strip()
        if line and line != self._last:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
            self._last = line
        return len(text)


class _Bar:
    """A context manager that draws its bar at the first event, so that a wrong argument draws no bar.

    One bar is drawn at a time: the first event of another ends its line.
    """

    _form: ClassVar[str]
    _drawn: ClassVar[tqdm[NoReturn] | None] = None

    def __init__(self, name: str, delay_s: float = 0.0) -> None:
        self._name, self._delay_s, self._begin = name, delay_s, time.time()
        self._bar: tqdm[NoReturn] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    write = staticmethod(tqdm.write)  # prints a line on standard output, above the bar

    def _show(self, text: str, done: int, total: int | None = None) -> None:
        bar = self._bar
        if bar is None or bar.disable:  # closed
            if _Bar._drawn is not None:
                _Bar._drawn.close()
            is_seen = _is_seen()
            bar = self._bar = _Bar._drawn = tqdm(
                desc=self._name,
                total=total,
                bar_format=self._form,
                initial=done,
                postfix=text,
                file=None if is_seen else _Lines(),
                dynamic_ncols=is_seen,
                mininterval=0.1 if is_seen else _PLAIN_S,
                delay=self._delay_s,
            )
            bar.start_t = self._begin
        bar.total = total
        bar.set_postfix_str(text, refresh=False)
        bar.update(done - bar.n)


class SearchBar(_Bar):
    """A bar with the best value and the bound of a search; called with each `SearchProgress`.

    Attributes:
        reports: Every `SearchProgress` so far.
    """

    _form = "{desc}: {elapsed}{postfix}, {n_fmt} queries"

    def __init__(self, tick_ms: float, name: str = "search", delay_s: float = 0.0) -> None:
        super().__init__(name, delay_s)
        self._tick_ms = tick_ms
        self.reports: list[SearchProgress] = []

    def __call__(self, progress: SearchProgress) -> None:
        """Show one event."""
        self.reports.append(progress)

        def in_units(value: float) -> str:
            return (
                f"{value:g} units"
                if progress.phase == Objective.MEMORY
                else f"{value * self._tick_ms:,.6g} ms"
            )

        best = "none yet" if progress.best is None else in_units(progress.best)
        by = f", {progress.found_by}" if progress.found_by else ""
        text = f"{progress.phase.replace('_', ' ')} {best} (bound {in_units(progress.bound)}){by}"
        self._show(text, progress.queries)


class IterationBar(_Bar):
    """A bar that counts iterations without a known total; called at the end of each iteration."""

    _form = "{desc}: {n_fmt} iterations, {elapsed}{postfix}"
    _done = 0

    def __call__(self, iteration: object) -> None:
        """Show one more iteration, as text."""
        self._done += 1
        self._show(str(iteration), self._done)


class StepBar(_Bar):
    """A bar over a known number of steps; called with (name of the step, steps done, all steps)."""

    _form = "{desc}: {percentage:3.0f}% {n_fmt}/{total_fmt}, {elapsed}{postfix}"

    def __call__(self, step: str, done: int, total: int) -> None:
        """Show one event."""
        self._show(step, done, total)


class PlanProgress(ExitStack):
    """A bar of steps, and one of each search."""

    def __init__(self, name: str = "plan", delay_s: float = 0.0) -> None:
        super().__init__()
        self._delay_s = delay_s
        self.step = self.enter_context(StepBar(name, delay_s))
        self._searches: dict[str, SearchBar] = {}

    def planner(self, done: int, total: int, best_ms: float | None, bound_ms: float) -> None:
        """Show how many numbers of stages, GPUs and micro-batches are done, the best plan and the bound.

        No bound holds for all plans while other batches and shapes are still to come.
        """
        best = "none yet" if best_ms is None else f"{best_ms:,.6g} ms"
        self.step(best + (f" (bound {bound_ms:,.6g} ms by the formula)" if bound_ms else ""), done, total)

    def search(self, name: str, tick_ms: float, progress: SearchProgress) -> None:
        """Show one event of a search."""
        if name not in self._searches:
            self._searches[name] = self.enter_context(SearchBar(tick_ms, name, self._delay_s))
        self._searches[name](progress)


_HOOKS: Mapping[str, Callable[[PlanProgress, Any], dict[str, Callable[..., None]]]] = {
    "search": lambda show, on: {  # a placement, or a problem that has one
        "on_progress": lambda event: show.search("search", getattr(on, "placement", on).tick_ms, event)
    },
    "compare": lambda show, _: {
        "on_progress": lambda row, on, event: show.search(f"{row}, {on.name}", on.tick_ms, event)
    },
    "frontier": lambda show, _: {"on_progress": show.step},
    "plan": lambda show, _: {"on_progress": show.planner, "on_search": show.search},
}
"""For each entry point with a bar: its listeners, made from the bar and the entry point's first argument."""


@cache
def with_bar(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an entry point so that it shows a bar if a person sees it and no `on_progress` is given."""

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        if options.get("on_progress") is not None or not _is_seen():
            return function(*args, **options)
        with PlanProgress(name, _CALL_S) as show:
            hooks = _HOOKS[name](show, args[0] if args else options.get("placement"))
            return function(
                *args, **options | {hook: on for hook, on in hooks.items() if not options.get(hook)}
            )

    called.__module__, called.__name__, called.__qualname__ = "schedsearch", name, name  # so it is pickled
    return called
