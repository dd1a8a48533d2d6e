"""Progress bars on standard error, with the best value and the bound so far: of commands, and of calls."""

from __future__ import annotations

import io
import sys
import threading
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

_TICK_S = 1.0
"""Seconds after which a call from Python draws its bar, and then draws it again."""


def _is_seen() -> bool:
    """Return whether standard error is a terminal or a notebook, where a line can be drawn again in place."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel") or getattr(sys.stderr, "isatty", bool)()


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

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = _Bar._drawn = None

    write = staticmethod(tqdm.write)  # prints a line on standard output, above the bar

    def _show(self, text: str, done: int, total: int | None) -> None:
        bar = self._bar
        if bar is None:
            if _Bar._drawn is not None:
                _Bar._drawn.__exit__()
            is_seen = _is_seen()
            bar = self._bar = tqdm(
                desc=self._name,
                total=total,
                bar_format=self._form,
                initial=done,
                postfix=text,
                file=None if is_seen else _Lines(),
                dynamic_ncols=is_seen,
                mininterval=0.1 if is_seen else _PLAIN_S,
            )
            bar.start_t = self._begin
            _Bar._drawn = self
        bar.total = total
        bar.set_postfix_str(text, refresh=False)
        bar.update(done - bar.n)


class SearchBar(_Bar):
    """A bar that shows what a search has found and proved; called with each `SearchProgress`.

    Attributes:
        told: All of these.
    """

    def __init__(self, tick_ms: float, name: str = "search") -> None:
        super().__init__(name, "{desc}: {elapsed}{postfix}, {n_fmt} queries")
        self._tick_ms = tick_ms
        self.told: list[SearchProgress] = []

    def __call__(self, progress: SearchProgress) -> None:
        """Show one event."""
        self.told.append(progress)
        self._show(_found(progress, self._tick_ms), progress.queries, None)


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


class PlanProgress(ExitStack):
    """A bar of the planner, then one of each search of a schedule."""

    def __init__(self) -> None:
        super().__init__()
        self._planner = self.enter_context(StepBar("plan"))
        self._searches: dict[str, SearchBar] = {}

    def planner(self, done: int, total: int, best_ms: float | None, bound_ms: float) -> None:
        """Show how many numbers of stages, GPUs and micro-batches are done, the best plan and the bound."""
        best = "none yet" if best_ms is None else f"{best_ms:,.6g} ms"
        self._planner(f"{best}{_of_formula(bound_ms)}", done, total)

    def layouts(self, done: int, total: int) -> None:
        """Show how many layouts are rated."""
        self._planner("layouts", done, total)

    def search(self, name: str, tick_ms: float, progress: SearchProgress) -> None:
        """Show one event of the search of a plan's schedule."""
        if name not in self._searches:
            self._searches[name] = self.enter_context(SearchBar(tick_ms, name))
        self._searches[name](progress)


def _found(progress: SearchProgress, tick_ms: float) -> str:
    """Return what a search has found and proved."""

    def in_units(value: float) -> str:
        return f"{value:g} units" if progress.phase == Objective.MEMORY else f"{value * tick_ms:,.6g} ms"

    best = "none yet" if progress.best is None else in_units(progress.best)
    by = f", {progress.found_by}" if progress.found_by else ""
    return f"{progress.phase.replace('_', ' ')} {best} (bound {in_units(progress.bound)}){by}"


def _of_formula(bound_ms: float) -> str:
    """Return what a planner proves: nothing of all while there are other batches and shapes."""
    return f" (bound {bound_ms:,.6g} ms by the formula)" if bound_ms else ""


_TEXTS: Mapping[str, Mapping[str, Callable[..., str]]] = {
    "search": {"on_progress": lambda on, event: _found(event, on.tick_ms)},
    "compare": {"on_progress": lambda _, row, on, event: f"{row}, {on.name}: {_found(event, on.tick_ms)}"},
    "frontier": {"on_progress": lambda _, step, done, total: f"{step} {done}/{total}"},
    "plan": {
        "on_progress": lambda _, done, total, best_ms, bound_ms: f"{done}/{total}{_of_formula(bound_ms)}",
        "on_search": lambda _, plan, tick_ms, event: f"{plan}: {_found(event, tick_ms)}",
    },
}
"""For each entry point with a bar: the text of an event, with the first argument before it, by its hook."""


@cache
def with_bar(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an entry point with a bar where a person sees it, unless it is given an `on_progress`."""

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        if options.get("on_progress") is not None or not _is_seen():
            return function(*args, **options)
        texts, ended = [""], threading.Event()

        def draw() -> None:
            with _Bar(name, "{desc}: {elapsed}{postfix}") as bar:
                while not ended.wait(_TICK_S):
                    bar._show(texts[-1], 0, None)
                if bar._bar is not None:
                    bar._show(texts[-1], 0, None)

        thread = threading.Thread(target=draw, daemon=True)  # between two events there may be many seconds
        thread.start()
        try:
            first = args[0] if args else options.get("placement")
            for hook, text in _TEXTS[name].items():
                if options.get(hook) is None:
                    options[hook] = lambda *event, text=text: texts.append(text(first, *event))
            return function(*args, **options)
        finally:
            ended.set()
            thread.join()

    called.__module__, called.__name__, called.__qualname__ = "schedsearch", name, name  # so it is pickled
    return called
