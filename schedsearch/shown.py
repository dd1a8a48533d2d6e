"""Results that show themselves in a notebook: as a table, a figure, a file."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Self


class Tabled:
    """What every result can do; `schedsearch.notebook` does it, called by name: results know no pictures."""

    def to_frame(self) -> Any:
        """Return a pandas DataFrame, with times in ms, memory in MiB and energy in J."""
        return _notebook().frame(self)

    def plot(self) -> Any:
        """Return a matplotlib Figure, which a notebook shows once."""
        figure = _notebook().figure(self)
        figure.show_after_cell()
        return figure

    def _ipython_display_(self) -> None:
        _notebook().show(self)


class Shown(Tabled):
    """What a result can do that has a file form."""

    def save(self, path: str | Path) -> Path:
        """Write the file form (JSON), whole or not at all; return the path."""
        return Path(_notebook().save(self, path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            ValueError: The file cannot be read, is of another kind or is wrong; one line that begins with it.
        """
        found: Self = _notebook().load(cls, path)
        return found


def _notebook() -> Any:
    return importlib.import_module("schedsearch.notebook")
