"""The end of a sweep: the table of its runs, its main figure over the swept option, the failed runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.plugins import Plugins
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from experiments.collect import TABLE, collect
from experiments.config.declaring import command_of
from experiments.config.run_record import DONE, FILE, RunRecordError, how_to_resume, read_run_record
from placements.forms.texts import write_text

if TYPE_CHECKING:
    import pandas as pd

PICTURE = "sweep"
"""Name of the picture's files in the directory of a sweep, without a suffix."""


class SweepEnd(Callback):
    """Writes the files of a sweep, and ends it with exit code 1 if points failed; called by Hydra."""

    def __init__(self, started: str) -> None:
        """Take when the command began."""
        self._started = started

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Take our launcher for Slurm in the place of the plugin's, of the same name and options."""
        if (name := config.hydra.launcher._target_).endswith(".SlurmLauncher"):
            from experiments.slurm import SlurmSweep

            Plugins.instance().class_name_to_class[name] = SlurmSweep

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Say where the files are and which points of this command failed, and exit if there are some."""
        directory, name = Path(config.hydra.sweep.dir), config.hydra.job.name
        failed = []
        for path in sorted(directory.rglob(FILE)):
            try:
                record = read_run_record(path.parent)
            except RunRecordError as error:
                failed.append(str(error))
                continue
            if record.started == self._started and record.status != DONE:
                swept = " ".join(record.overrides)
                failed.append(f"{path.parent}: {record.status}: {swept}: {record.message}")
        end = f"{name}: not done: {len(failed)} points; {how_to_resume(directory)}"
        try:
            print("written:", *write_sweep(directory, command_of(name).objective))  # noqa: T201
        except RunRecordError:
            pass  # it is among those that failed
        except OSError as error:
            failed.append(f"{directory / TABLE}: {error.strerror}; it is as it was, collect makes it anew")
        if failed:
            print(*failed, end, sep="\n", file=sys.stderr)  # noqa: T201
            sys.exit(1)


def write_sweep(directory: Path, objective: str = "") -> list[Path]:
    """Write the table of a sweep, and a picture where it has something to show; return their paths.

    The objective is the figure of the runs that is drawn; empty for their first number.

    Raises:
        RunRecordError: The record of a run is wrong.
    """
    table = collect(directory)
    write_text(directory / TABLE, table.to_csv(index=False))
    if (figure := draw_sweep(table, objective)) is None:
        return [directory / TABLE]
    from schedsearch.figures.canvas import save

    save(figure, directory / PICTURE)
    return [directory / TABLE, directory / f"{PICTURE}.png"]


def draw_sweep(table: pd.DataFrame, objective: str = "") -> Any:
    """Draw the main figure of the finished runs over the swept option.

    The number with most values is the axis, other options make curves; one without numbers has bars.

    Returns:
        A matplotlib figure; None if there is no figure to draw, or several options and none with numbers.
    """
    from schedsearch.figures.bars import BarPanel, draw_bars
    from schedsearch.figures.panels import CurvePoint, Panel, draw_panels

    done = table[table["status"] == DONE].infer_objects()
    columns = list(done.columns)
    status = columns.index("status")
    swept = [name for name in columns[2:status] if done[name].nunique(dropna=False) > 1]
    figures = _numbers(done, columns[status + 1 : -2])
    shown = objective if objective in figures else next(iter(figures), "")
    axes = _numbers(done, swept)
    if not shown or not (axes or len(swept) == 1):
        return None
    over, title = max(axes or swept, key=done.nunique().__getitem__), f"{done['command'].iloc[0]}: {shown}"
    rows = done.dropna(subset=[over, shown]).to_dict("records")
    if not axes:
        bars = {str(row[over]): {shown: row[shown]} for row in rows}
        return draw_bars([BarPanel(title, bars)], shown, width=7.0)
    curves: dict[str, list[CurvePoint]] = {}
    for row in sorted(rows, key=lambda row: row[over]):
        others = ", ".join(f"{name.rpartition('.')[2]}={row[name]}" for name in swept if name != over)
        curves.setdefault(others or shown, []).append(CurvePoint(row[over], row[shown]))
    return draw_panels([Panel("", curves)], over, shown, title)


def _numbers(table: pd.DataFrame, names: list[str]) -> list[str]:
    """Return the names of those columns that are numbers."""
    return [name for name in names if table[name].dtype.kind in "iuf" and table[name].notna().any()]
