"""Results that show themselves in a notebook: as a table, a figure, a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self


class TableResult:
    """A result that shows itself as a table and a figure.

    Attributes:
        presentation: Returns the maker of tables, figures and files; the package sets it, results know none.
    """

    presentation: ClassVar[Callable[[], Any]]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame, with times in ms, memory in MiB and energy in J."""
        return type(self).presentation().frame(self)

    def plot(self) -> Any:
        """Return a matplotlib Figure, which a notebook shows once."""
        figure = type(self).presentation().figure(self)
        figure.show_after_cell()
        return figure

    def _ipython_display_(self) -> None:
        type(self).presentation().show(self)


class FileResult(TableResult):
    """A result with a table, a figure and a file form."""

    def save(self, path: str | Path) -> Path:
        """Write the file form (JSON), whole or not at all; return the path."""
        return Path(type(self).presentation().save(self, path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote.

        Raises:
            ValueError: The file cannot be read, is of another kind or is wrong; one line with its name first.
        """
        result: Self = cls.presentation().load(cls, path)
        return result
