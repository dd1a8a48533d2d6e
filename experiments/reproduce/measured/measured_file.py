"""The file of published measurements that an item is made of, and how many of its rows are taken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.config.options import OptionError, require_least, require_limits
from placements.forms.meaning import Verbatim, option


@dataclass(frozen=True)
class MeasuredOptions:
    """Where the measurements are."""

    data: Verbatim | None = option(None, "folder with a measured_times.csv")
    max_rows: int | None = option(None, "number of rows of the file, from the first one; null: all")

    def path_of(self, file: str) -> Path:
        """Return the path of the file with this name.

        Raises:
            OptionError: No folder is given, or an option is out of its range.
        """
        if not self.data:
            raise OptionError(f"data: has no value; give the folder of {file}, as in data=FOLDER")
        require_limits(self)
        require_least("max_rows", self.max_rows, 1)
        return Path(self.data) / file
