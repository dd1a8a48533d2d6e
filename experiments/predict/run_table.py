"""Folders of tables of measured runs, in our form or in one of others'; see `docs/commands/predict.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from experiments.predict.runs.models import read_models, shape_of
from experiments.predict.runs.run import Run
from experiments.predict.runs.table_forms import RunTableError, TableForm, form_of
from placements.forms.reading import in_file
from placements.forms.tables import Cell, csv_header, csv_records, csv_rows
from placements.gpus import GPUS
from placements.models.chain import ModelShape
from placements.models.machine.machine_file import read_machine
from placements.models.machine.machine_rates import MachineRates
from placements.models.zoo.shapes import suggestion
from placements.trainers.layout import LayoutError

MODELS_FILE = "models.json"

_COLUMNS = tuple(each.name for each in fields(Run))


@dataclass(frozen=True)
class RunFolder:
    """Tables of runs by their files, sizes of models by name, and measured rates by the name of the GPU."""

    tables: Mapping[str, tuple[Run, ...]]
    models: Mapping[str, Run]
    machines: Mapping[str, MachineRates]

    @property
    def runs(self) -> list[Run]:
        """All of them."""
        return [run for table in self.tables.values() for run in table]

    def model(self, run: Run) -> ModelShape:
        """Return the model of a run; see `shape_of`."""
        return shape_of(run, self.models)


NO_TABLES = RunFolder({}, {}, {})
"""A folder with nothing in it."""


def read_run_folder(folder: Path) -> RunFolder:
    """Read the tables of a folder, `MODELS_FILE` and the machines' files if there are any.

    A machine's file is JSON or CSV whose name begins with that of its GPU, as ``b200_bf16.json``. Other CSV
    files are left out, but for those that nearly have the columns of a known table.

    Raises:
        ValueError: A file is wrong; the message begins with its path.
    """
    tables, machines = dict[str, tuple[Run, ...]](), dict[str, MachineRates]()
    for path in sorted(each for each in folder.iterdir() if each.is_file()):
        named = [gpu for gpu in GPUS if f"{path.stem}_".startswith(f"{gpu}_")]
        if is_table(path) and (runs := read_run_table(path)):
            tables[path.name] = runs
        elif named and path.suffix in (".json", ".csv"):
            gpu = max(named, key=len)
            machines.setdefault(gpu, read_machine(path, GPUS[gpu]))
    models = folder / MODELS_FILE
    return RunFolder(tables, read_models(models) if models.is_file() else {}, machines)


def is_table(path: Path) -> bool:
    """Return whether a file's name is that of a table."""
    return path.name.lower().endswith((".csv", ".csv.gz"))


def read_run_table(path: Path) -> tuple[Run, ...]:
    """Return the runs of a table in our form or in one of others'; none if it is no table of runs.

    In our form a wrong cell is an error. Of others' forms such a row is a run with the reason in `refused`.

    Raises:
        RunTableError: The file cannot be read, or its columns are nearly those of a known form.
    """
    with in_file(path, RunTableError):
        header = csv_header(path, RunTableError)
        if "run" in map(str.casefold, header):
            return tuple(_own_runs(path, header))
        form = form_of(header)
        return () if form is None else tuple(_foreign_runs(path, form))


def _own_runs(path: Path, header: list[str]) -> Iterator[Run]:
    """Yield the runs of a table in our form."""
    if wrong := [name for name in header if name and name.casefold() not in _COLUMNS]:
        remedy = suggestion(wrong[0], _COLUMNS)
        raise RunTableError(f"line 1: has an unknown column {wrong[0]!r}; {remedy}")
    for line, run in csv_records(path, "run", RunTableError, Run, once=("run",)):
        completed = run
        try:
            completed = run.completed
            completed.check_names()
        except (RunTableError, LayoutError) as why:
            if not run.refused:
                raise RunTableError(f"line {line}, column {why}") from None
        yield completed


def _foreign_runs(path: Path, form: TableForm) -> Iterator[Run]:
    """Yield the runs of a table in another form, named by file and line."""
    more, stem = form.more_cells(path), path.name.partition(".")[0]
    for row in csv_rows(path, "run", RunTableError, form.columns_needed):
        cells = {**more.get(row.cells.get(form.more_by, ""), {}), **row.cells}
        ours = {"run": f"{stem}:{row.line}"} | form.our_cells(cells, _COLUMNS)
        run = Run(ours["run"], ours.get("gpu", ""), 1, 1, num_micro_batches=1, note=ours.get("note", ""))
        try:
            run = Cell(ours, "", RunTableError).record(Run)
            run = run.completed
            run.check_names()
        except (RunTableError, LayoutError) as why:
            missing = re.sub(r"^lacks the field '(\w+)'; add it$", r"\1: is not in the row", str(why))
            run = replace(run, refused=ours.get("refused", missing))
        yield run
