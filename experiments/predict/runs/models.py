"""Models of runs: by name, by the sizes of a row, or by a file in SimuMax's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.predict.runs.run import Run
from experiments.predict.runs.table_forms import RunTableError, table_forms
from placements.forms.reading import json_file
from placements.forms.tables import Cell
from placements.models.chain import ModelShape
from placements.models.zoo import MODELS, decoder, read_model
from placements.models.zoo.shapes import sizes_of

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

_COLUMNS = (*SIZES, "expert_feed_forward")

_NEEDED = ("layers", "heads", "vocab")
"""Columns without which a model with a width of its own has no sizes."""


def shape_of(run: Run, models: Mapping[str, Run]) -> ModelShape:
    """Return the model of a run, with its layers, tokens, precision, and padded vocabulary.

    Args:
        run: The run.
        models: Runs by the name of a model whose sizes they have, as of `read_models`.

    Raises:
        ValueError: The model is not known, or a size is wrong.
    """
    if (known := models.get(run.model)) is not None:
        missing = [name for name in _COLUMNS if getattr(run, name) is None]
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
    numbers = replace(
        numbers,
        gradient_bytes=numbers.gradient_bytes if gradient is None else gradient,
        optimizer_bytes=numbers.optimizer_bytes if optimizer is None else optimizer,
    )
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
    form, columns = table_forms()["simumax_models"], [*_COLUMNS]
    with json_file(path, "a file of models", RunTableError) as data:
        found = {}
        for name in data.mapping():
            fields = {key: str(value) for key, value in data[name].mapping().items() if value is not None}
            if missing := [key for key in form.columns_needed if key not in fields]:
                raise RunTableError(f"{name}: lacks the field {missing[0]!r}; add it")
            cell = Cell(form.our_cells(fields, columns), name, RunTableError)
            found[name] = cell.record(Run, run=name, gpu="", gpus=1, sequence_length=1)
    return found
