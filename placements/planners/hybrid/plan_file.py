"""The file form of a plan: model, cluster and stages in full, not by the name of a model.

The module knows JSON's plain data and the layers' fields. It does not know costs of plans.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from placements.cluster import NAMED_GPUS, Cluster
from placements.forms.reading import Field, json_file, plain
from placements.models import end_layers
from placements.models.chain import ModelDetails, ModelShape
from placements.models.layers import PRECISIONS, Layer
from placements.models.mamba import MambaLayer
from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.plan import Plan, PlanError, StagePlan

SCHEMA_VERSION = 1
"""Version of the file form."""

_LAYERS: dict[str, type[Layer]] = {
    "transformer": TransformerLayer,
    "state_space": MambaLayer,
    "embedding": end_layers.EmbeddingLayer,
    "output": end_layers.OutputLayer,
    "projection": end_layers.ProjectionLayer,
    "custom": end_layers.CustomLayer,
    "profiled": end_layers.ProfiledLayer,
}
"""Layers by the name of their kind."""

_MOST = 10**6
"""Most samples of a batch, layers of a run and GPUs of a cluster."""


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain data, of which `plan_from_dict` makes an equal one.

    GPUs of `placements.gpus.GPUS` are written as their names, others with all their figures.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "model": _model_to_dict(plan.model),
        "cluster": plain(plan.cluster, NAMED_GPUS),
        "global_batch_size": plan.global_batch_size,
        "num_micro_batches": plan.num_micro_batches,
        "stages": [
            {
                "gpus": [stage.gpus.start, stage.gpus.stop],
                "layers": [
                    {"count": count, **plain(how, defaults=False)}
                    for _, how, count in plan.runs(stage.layers)
                ],
            }
            for stage in plan.stages
        ],
    }


def read_plan_file(path: str | Path) -> Plan:
    """Read a plan from a JSON file; see `plan_from_dict`.

    Raises:
        PlanError: The file cannot be read or is wrong; the message begins with its path.
    """
    with json_file(path, "a plan.json of schedsearch plan", PlanError) as data:
        return plan_from_dict(data.value)


def plan_from_dict(data: object) -> Plan:
    """Build a plan from its file form.

    Raises:
        PlanError: A field is missing, unknown or wrong, or a rule is broken.
    """
    required = ("schema_version", "model", "cluster", "global_batch_size", "num_micro_batches", "stages")
    fields = Field(data, "plan", PlanError, is_root=True).only(required, ("estimate",))
    fields.version(SCHEMA_VERSION)
    model, cluster = _model(fields["model"]), fields["cluster"].record(Cluster, named=NAMED_GPUS)
    batch, number = _count(fields["global_batch_size"]), _count(fields["num_micro_batches"])
    stages, first = list[StagePlan](), 0
    for stage in (entry.only(("gpus", "layers"), ()) for entry in fields["stages"].items()):
        gpus = [_count(gpu, 0) for gpu in stage["gpus"].items()]
        if len(gpus) != 2:
            raise stage["gpus"].wrong("two numbers", "give the first GPU and the one after the last")
        ways: list[LayerStrategy] = []
        for entry in stage["layers"].items():
            ways += [entry.record(LayerStrategy, ("count",))] * _count(entry["count"])
        stages.append(StagePlan(range(*gpus), range(first, first + len(ways)), tuple(ways)))
        first += len(ways)
    return Plan(model, cluster, tuple(stages), batch, number)


def _model_to_dict(model: ModelShape) -> dict[str, Any]:
    names = {kind: name for name, kind in _LAYERS.items()}
    return {
        "name": model.name,
        "precision": model.precision.name,
        "runs": [
            {"count": count, "kind": names[type(layer)], **plain(layer, defaults=False)}
            for count, layer in model.runs
        ],
        "branches": [_model_to_dict(branch) for branch in model.branches],
        "details": plain(model.details, defaults=False),
    }


def _model(field: Field) -> ModelShape:
    fields = field.only(("name", "precision", "runs"), ("branches", "details"))
    precision = PRECISIONS[fields["precision"].choice(tuple(PRECISIONS))]
    runs = []
    for run in fields["runs"].items():
        kind = _LAYERS[run["kind"].choice(tuple(_LAYERS))]
        runs.append((_count(run["count"]), run.record(kind, ("count", "kind"))))
    branches = tuple(_model(branch) for branch in fields.get("branches", []).items())
    details = fields.get("details", {}).record(ModelDetails)
    try:
        return ModelShape(fields["name"].text(), tuple(runs), precision, branches, details)
    except ValueError as error:
        raise PlanError(f"{field.where}: {error}") from None


def _count(field: Field, least: int = 1) -> int:
    return field.whole(f"a whole number from {least} to {_MOST}", min=least, max=_MOST)
