"""Published measurements, and our schedules of the same times.

- `zero_bubble`: the measured blocks of its runs, bubble rates of its schedules, and of searched ones
- `vocabulary_parallelism`: iterations of pipelines whose last stage has the output layer
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.config.options import OptionError
from placements.forms.meaning import Verbatim, option


@dataclass(frozen=True)
class MeasuredOptions:
    """Folder of the measurements, and how many of its rows are taken."""

    data: Verbatim | None = option(None, "folder with a measured_times.csv")
    max_rows: int | None = option(None, "number of rows of the file, from the first one; null: all", min=1)

    def path_of(self, file: str) -> Path:
        """Return the path of the file with this name.

        Raises:
            OptionError: No folder is given.
        """
        if not self.data:
            raise OptionError(f"data: has no value; give the folder of {file}, as in data=FOLDER")
        return Path(self.data) / file
