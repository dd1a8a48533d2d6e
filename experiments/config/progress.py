"""Progress bars on standard error, with the best value and the bound so far."""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn, Self

from tqdm import tqdm

from schedsearch.modulo.result import Progress


class _Bar:
    """A context manager whose bar is made at the first event, so that a wrong argument draws none."""

    def __init__(self, name: str, form: str) -> None:
        self._name = name
        self._form = form
        self._bar: tqdm[NoReturn] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def write(self, line: str) -> None:
        """Print a line on standard output, above the bar."""
        tqdm.write(line)

    def _show(self, text: str, done: int, total: int | None) -> None:
        bar = self._bar
        if bar is None:
            bar = self._bar = tqdm(desc=self._name, total=total, bar_format=self._form)
        bar.total = total
        bar.set_postfix_str(text, refresh=False)
        bar.update(done - bar.n)


class SearchBar(_Bar):
    """A bar that shows what a search has found and proved; called with each `Progress`."""

    def __init__(self) -> None:
        super().__init__("search", "{desc}: {n_fmt} queries, {elapsed}{postfix}")

    def __call__(self, progress: Progress) -> None:
        """Show one event."""
        best = "none yet" if progress.best is None else progress.best
        self._show(f"{progress.phase} {best} (bound {progress.bound})", progress.queries, None)


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
