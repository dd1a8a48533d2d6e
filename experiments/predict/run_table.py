"""Folders of tables of measured runs, in our form or in one of others', and the models of the runs.

See `docs/commands/predict.md`. A model is known by its name, by the sizes of a row, or by a file in SimuMax's
form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from experiments.predict.runs.run import Run
from experiments.predict.runs.table_forms import RunTableError, TableForm, table_form, table_forms
from placements.forms.reading import in_file, json_file
from placements.forms.tables import Cell, csv_header, csv_records, csv_rows
from placements.gpus import GPUS
from placements.models.chain import ModelShape
from placements.models.machine.machine_file import read_machine
from placements.models.machine.machine_rates import MachineRates
from placements.models.zoo import MODELS, decoder, read_model
from placements.models.zoo.shapes import sizes_of, suggestion
from placements.trainers.layout import LayoutError

MODELS_FILE = "models.json"

_COLUMNS = tuple(field.name for field in fields(Run))

SIZES: Mapping[str, str] = {
    "layers": "num_layers",
    "hidden": "hidden_size",
    "heads": "num_heads",
    "kv_heads": "num_kv_heads",
    "feed_forward": "feed_forward_size",
    "vocab": "vocab_size",
    "experts": "num_experts",
    "top_k": "experts_per_token",
    "shared_expert": "shared_expert_size",
    "dense_layers": "num_dense_layers",
    "predict_layers": "num_predict_layers",
} | {name: name for name in sizes_of(decoder) if name in Run.__annotations__}
"""Columns with sizes of a model, and the sizes of `placements.models.zoo.decoder` that they are."""

_SIZE_COLUMNS = (*SIZES, "expert_feed_forward")

_NEEDED = ("layers", "heads", "vocab")
"""Columns without which a model with a width of its own has no sizes."""


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
    for path in sorted(file for file in folder.iterdir() if file.is_file()):
        named = [gpu for gpu in GPUS if f"{path.stem}_".startswith(f"{gpu}_")]
        if is_table(path) and (runs := read_run_table(path)):
            tables[path.name] = runs
        elif named and path.suffix in (".json", ".csv"):
            gpu = max(named, key=len)
            machines.setdefault(gpu, read_machine(path, GPUS[gpu]))
    models = folder / MODELS_FILE
    return RunFolder(tables, read_models(models) if models.is_file() else {}, machines)


def is_table(path: Path) -> bool:
    """Return whether a file is a table, by its ending."""
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
        form = table_form(header)
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


def shape_of(run: Run, models: Mapping[str, Run]) -> ModelShape:
    """Return the model of a run, with its layers, tokens, precision, and padded vocabulary.

    It may be one of `read_models`, by the run's name of it.

    Raises:
        ValueError: The model is not known, or a size is wrong.
    """
    if (known := models.get(run.model)) is not None:
        missing = [name for name in _SIZE_COLUMNS if getattr(run, name) is None]
        run = replace(run, **{name: getattr(known, name) for name in missing})
    sizes = _sizes_of(run)
    if run.hidden is not None:
        if empty := [name for name in _NEEDED if getattr(run, name) is None]:
            raise RunTableError(f"{empty[0]}: is empty, and hidden is not; give all sizes")
        name, make = run.model or "model", decoder
    elif not run.model:
        raise RunTableError("model: is empty, as is hidden; name a model, or give its sizes")
    else:
        name, make = {_plain(name): name for name in MODELS}.get(_plain(run.model), run.model), read_model
        sizes.setdefault("vocab_size", getattr(read_model(name).layers[0], "vocab_size", None))
        if sizes["vocab_size"] is None:
            raise RunTableError(f"model: {name} is no language model; name one, or give sizes")
    multiple = run.vocab_multiple * run.tp
    model = make(name, **{**sizes, "vocab_size": -(-sizes["vocab_size"] // multiple) * multiple})
    numbers = model.precision.with_16_bit_weights if run.weights_16_bit else model.precision
    gradient, optimizer = (0, 0) if run.frozen else (run.gradient_bytes, run.optimizer_bytes)
    gradient = numbers.gradient_bytes if gradient is None else gradient
    optimizer = numbers.optimizer_bytes if optimizer is None else optimizer
    numbers = replace(numbers, gradient_bytes=gradient, optimizer_bytes=optimizer)
    return replace(model, precision=numbers)


def _sizes_of(run: Run) -> dict[str, Any]:
    """Return the sizes and the precision that a row gives, as arguments of `decoder`."""
    given = {theirs: getattr(run, ours) for ours, theirs in SIZES.items()}
    sizes = {name: value for name, value in given.items() if value is not None}
    sizes["precision"] = run.precision_name
    if run.dense_layers and run.layers:
        sizes["num_dense_layers"] = min(run.dense_layers, run.layers - 1)
    if (run.experts or 1) > 1 and run.expert_feed_forward:
        sizes["feed_forward_size"] = run.expert_feed_forward
        sizes["dense_feed_forward_size"] = run.feed_forward
    return sizes


def _plain(name: str) -> str:
    """Return a name without the marks between its letters and digits."""
    return "".join(filter(str.isalnum, name.lower()))


def read_models(path: Path) -> dict[str, Run]:
    """Return the sizes of the models of a file in SimuMax's form, each as a run with nothing else."""
    form, columns = table_forms()["simumax_models"], [*_SIZE_COLUMNS]
    with json_file(path, "a file of models", RunTableError) as data:
        models = {}
        for name in data.mapping():
            fields = {key: str(value) for key, value in data[name].mapping().items() if value is not None}
            if missing := [key for key in form.columns_needed if key not in fields]:
                raise RunTableError(f"{name}: lacks the field {missing[0]!r}; add it")
            cell = Cell(form.our_cells(fields, columns), name, RunTableError)
            models[name] = cell.record(Run, run=name, gpu="", gpus=1, sequence_length=1)
    return models
