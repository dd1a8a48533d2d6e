"""Tables of measured runs: a model on GPUs under Megatron's degrees; see `docs/commands/predict.md`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from experiments.predict.measured_folder import MeasuredFolderError
from placements.cluster import Cluster, GpusError, read_cluster
from placements.forms.meaning import Meaning
from placements.forms.reading import Field, json_file
from placements.forms.tables import csv_files, csv_records
from placements.gpus import GPUS
from placements.models.chain import ModelShape
from placements.models.layers import SIXTEEN_BITS
from placements.models.machine.machine_file import read_machine
from placements.models.machine.measured_rates import MeasuredRates
from placements.models.parallel import Recompute
from placements.models.zoo import decoder, read_model
from placements.models.zoo.shapes import suggestion
from placements.planners.hybrid.uniform import Degrees

MODELS_FILE = "models.json"

_PRECISIONS = {"fp16": "bf16"}
"""Names of tables that are not ours."""

_VOCABULARY_MULTIPLE = 128
"""Rows of each GPU's part of the vocabulary are a multiple of this, as Megatron-LM pads it."""


@dataclass(frozen=True)
class Run:
    """A row of a table: a run and its measurements."""

    run: Annotated[str, Meaning("name of the run")]
    model: Annotated[str, Meaning("name of a model, in models.json or of `schedsearch plan model=all`")]
    gpu: Annotated[str, Meaning("name of a GPU, such as b200")]
    gpus: Annotated[int, Meaning("GPUs", min=1)]
    num_micro_batches: Annotated[int, Meaning("micro-batches of a data-parallel group", min=1)]
    sequence_length: Annotated[int, Meaning("tokens of a sample", min=1)]
    layers: Annotated[int | None, Meaning("layers; empty: the model's own", min=1)] = None
    tp: Annotated[int, Meaning("GPUs that share each matrix", min=1)] = 1
    pp: Annotated[int, Meaning("stages", min=1)] = 1
    vp: Annotated[int, Meaning("chunks of a stage", min=1)] = 1
    cp: Annotated[int, Meaning("GPUs that share the tokens of a sample", min=1)] = 1
    ep: Annotated[int, Meaning("GPUs that share the experts", min=1)] = 1
    dp: Annotated[int | None, Meaning("data-parallel groups; empty: all other GPUs", min=1)] = None
    micro_batch: Annotated[int, Meaning("samples of a micro-batch", min=1)] = 1
    precision: Annotated[str, Meaning("half, bf16, fp8, fp8_blockwise, mxfp8 or nvfp4")] = "bf16"
    recompute: Annotated[Recompute, Meaning("what backwards compute again; empty: none")] = "none"
    weights_16_bit: Annotated[
        bool, Meaning("16-bit weights stand beside those of 8 or 4 bits, true or false")
    ] = False
    overlap: Annotated[
        bool | None, Meaning("gradients and new weights are exchanged beside the pipeline, true or false")
    ] = None
    measured_ms: Annotated[float | None, Meaning("time of an iteration", "ms", above=0)] = None
    measured_gib: Annotated[float | None, Meaning("most memory that a GPU allocated", "GiB", above=0)] = None
    peer_ms: Annotated[float | None, Meaning("what another tool predicts", "ms", above=0)] = None
    peer_gib: Annotated[float | None, Meaning("what another tool predicts", "GiB", above=0)] = None
    note: Annotated[str, Meaning("remark, which the predictions repeat")] = ""

    @property
    def degrees(self) -> Degrees:
        """How GPUs share the model."""
        return Degrees(
            self.tp, self.pp, self.data_parallel, self.cp, self.ep, self.vp, context_sharing="ring"
        )

    @property
    def data_parallel(self) -> int:
        """Data-parallel groups."""
        return self.dp or max(self.gpus // (self.tp * self.pp * self.cp), 1)

    def cluster(self) -> Cluster:
        """Return its GPUs, in nodes that hold equal numbers of them; an error if they are not known."""
        if self.gpu not in GPUS:
            raise MeasuredFolderError(f"gpu: {self.gpu!r} is not known; {suggestion(self.gpu, GPUS)}")
        usual = GPUS[self.gpu].gpus_per_node
        each = usual if self.gpus % usual == 0 else math.gcd(self.gpus, 1 << usual.bit_length() - 1)
        try:
            return read_cluster(f"{self.gpu}_{self.gpus}", gpus_per_node=each)
        except GpusError as error:
            raise MeasuredFolderError(str(error)) from None


@dataclass(frozen=True)
class RunFolder:
    """Tables of runs by their files, sizes of models by name, and measured rates by the name of the GPU."""

    tables: Mapping[str, tuple[Run, ...]]
    models: Mapping[str, Mapping[str, Any]]
    machines: Mapping[str, MeasuredRates]

    @property
    def runs(self) -> list[Run]:
        """All of them."""
        return [run for table in self.tables.values() for run in table]

    def machine(self, run: Run, precision: str) -> MeasuredRates | None:
        """Return the rates of a run's GPU where they were measured in its precision, which is of 16 bits."""
        return self.machines.get(run.gpu) if precision in SIXTEEN_BITS else None

    def model(self, run: Run) -> ModelShape:
        """Return the model of a run, with its layers, tokens, precision, and padded vocabulary.

        Raises:
            PlacementError: The model is not known, or a size is wrong.
        """
        precision = run.precision.lower()
        sizes: dict[str, Any] = {
            "sequence_length": run.sequence_length,
            "precision": _PRECISIONS.get(precision, precision),
        }
        if (known := self.models.get(run.model)) is not None:
            layers = run.layers or known["num_layers"]
            sizes |= {
                "num_layers": layers,
                "num_dense_layers": min(known.get("num_dense_layers", 0), layers - 1),
                "vocab_size": _padded(known["vocab_size"], run.tp),
            }
            model = decoder(run.model, **{**known, **sizes})
        else:
            sizes["causal"] = True  # kernels of language models leave out the scores of later tokens
            if run.layers is not None:
                sizes["num_layers"] = run.layers
            vocab_size = read_model(run.model, **sizes).layers[0].vocab_size  # type: ignore[attr-defined]
            model = read_model(run.model, **sizes, vocab_size=_padded(vocab_size, run.tp))
        if run.weights_16_bit:
            model = replace(model, precision=model.precision.with_16_bit_weights)
        return model


def _padded(rows: int, tensor_parallel: int) -> int:
    multiple = _VOCABULARY_MULTIPLE * tensor_parallel
    return -(-rows // multiple) * multiple


def read_run_folder(folder: Path) -> RunFolder:
    """Read the tables of a folder, `MODELS_FILE` and the machines' files if there are any.

    A machine's file is JSON or CSV whose name begins with that of its GPU, as ``b200_bf16.json``.

    Raises:
        ValueError: A file is wrong; the message begins with its path.
    """
    tables = {
        path: csv_records(path, "run", MeasuredFolderError, Run, others=True, once=("run",))
        for path in csv_files(folder, Run, MeasuredFolderError)
    }
    known = {path.name for path in tables} | {MODELS_FILE}
    machines: dict[str, MeasuredRates] = {}
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.csv")]):
        named = [gpu for gpu in GPUS if f"{path.stem}_".startswith(f"{gpu}_")]
        gpu = max(named, key=len, default="")
        if path.name not in known and gpu and gpu not in machines:
            machines[gpu] = read_machine(path, GPUS[gpu])
    models = folder / MODELS_FILE
    return RunFolder(
        {path.name: tuple(run for _, run in rows) for path, rows in tables.items()},
        _read_models(models) if models.is_file() else {},
        machines,
    )


_SIZES = {
    "hidden_size": "hidden_size",
    "num_heads": "head_num",
    "num_layers": "layer_num",
    "vocab_size": "vocab_size",
}
_OPTIONAL_SIZES = {
    "num_kv_heads": "kv_head_num",
    "num_experts": "expert_num",
    "experts_per_token": "topk",
    "shared_expert_size": "moe_shared_expert_intermediate_size",
    "num_dense_layers": "dense_layers",
}
_LATENT_SIZES = {
    "kv_rank": "kv_lora_rank",
    "query_rank": "q_lora_rank",
    "rope_width": "qk_pos_emb_head_dim",
    "value_width": "v_head_dim",
    "head_width": "qk_head_dim",
}
"""Arguments of `placements.models.zoo.decoder`, and the fields of a file that give them."""


def _read_models(path: Path) -> dict[str, dict[str, Any]]:
    """Return the arguments of `decoder` for each model of a file in SimuMax's form."""
    with json_file(path, "a file of models", MeasuredFolderError) as data:
        return {name: _sizes(data[name]) for name in data.mapping()}


def _sizes(field: Field) -> dict[str, Any]:
    is_latent = field.get("attention_type", "").value == "mla"
    has_experts = field.get("expert_num", 1).whole(min=1) > 1
    names = {**_SIZES, **(_LATENT_SIZES if is_latent else {"head_width": "head_size"})}
    sizes: dict[str, Any] = {ours: field[theirs].whole(min=1) for ours, theirs in names.items()}
    for ours, theirs in _OPTIONAL_SIZES.items():
        if field.get(theirs).value is not None:
            sizes[ours] = field[theirs].whole(min=0)
    if is_latent:
        sizes.pop("num_kv_heads", None)
    inner = field["intermediate_size"].whole(min=1)
    sizes["feed_forward_size"] = field["moe_ffn_hidden_size"].whole(min=1) if has_experts else inner
    if has_experts:
        sizes["dense_feed_forward_size"] = inner
    return sizes | {
        "gated": field.get("use_swiglu", True).value is True,
        "query_key_norms": field.get("qk_layernorm", False).value is True,
        "causal": True,
        **dict.fromkeys(("dropout", "biases", "learned_positions", "tied"), False),
    }
