"""The file form of a plan: all that it is, to be read again without the names that it was made of.

The module knows JSON's plain data and the layers' fields. It does not know what a plan costs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from placements.cluster import Cluster, Nodes
from placements.files import read_json
from placements.hardware import GPUS, Gpu
from placements.models.chain import ModelShape
from placements.models.end_layers import CustomLayer, EmbeddingLayer, OutputLayer, ProjectionLayer
from placements.models.layers import PRECISIONS, Layer, TransformerLayer
from placements.models.parallel import LayerStrategy
from placements.models.profiled_layer import ProfiledLayer
from placements.plain_data import Field, in_file
from placements.planners.hybrid.joined_plan import JoinedPlan
from placements.planners.hybrid.plan import Plan, StagePlan
from placements.planners.parallel_plan import PlanError

SCHEMA_VERSION = 1
"""Version of the file form."""

_LAYERS: dict[str, type[Layer]] = {
    "transformer": TransformerLayer,
    "embedding": EmbeddingLayer,
    "output": OutputLayer,
    "projection": ProjectionLayer,
    "custom": CustomLayer,
    "profiled": ProfiledLayer,
}
"""Layers by the name of their kind."""

_MOST = 10**18
_MOST_LAYERS = 10**5
_MOST_GPUS = 10**6
"""What a size, the layers of a run and the GPUs of a node or a cluster are at most."""


def plan_to_dict(plan: Plan | JoinedPlan) -> dict[str, Any]:
    """Return a plan as plain data, of which `plan_from_dict` makes an equal one.

    Raises:
        PlanError: A GPU is none of `placements.hardware.GPUS`, by whose names they are written.
    """
    whole = {
        "schema_version": SCHEMA_VERSION,
        "model": _model_to_dict(plan.model),
        "cluster": _cluster_to_dict(plan.cluster),
        "global_batch_size": plan.global_batch_size,
        "num_micro_batches": plan.num_micro_batches,
    }
    if isinstance(plan, Plan):
        return whole | {"stages": _stages_to_list(plan)}
    branches = [{"stages": _stages_to_list(branch)} for branch in plan.branches]
    return whole | {"branches": branches, "joined": _without_defaults(plan.joined)}


def read_plan_file(path: str | Path) -> Plan | JoinedPlan:
    """Read a plan from a JSON file; see `plan_from_dict`.

    Raises:
        PlanError: The file cannot be read or is wrong; the message begins with its path.
    """
    data = read_json(path, "a plan.json of schedsearch plan", PlanError)
    with in_file(path, PlanError):
        return plan_from_dict(data)


def plan_from_dict(data: object) -> Plan | JoinedPlan:
    """Build a plan from its file form.

    Raises:
        PlanError: A field is missing, unknown or wrong, or a rule is broken.
    """
    is_joined = isinstance(data, dict) and "branches" in data
    own = ("branches", "joined") if is_joined else ("stages",)
    required = ("schema_version", "model", "cluster", "global_batch_size", "num_micro_batches", *own)
    fields = Field(data, "plan", PlanError, is_root=True).only(required, ("estimate",))
    fields.version(SCHEMA_VERSION)
    model, cluster = _model(fields["model"]), _cluster(fields["cluster"])
    batch, number = _count(fields["global_batch_size"]), _count(fields["num_micro_batches"])
    if not is_joined:
        return Plan(model, cluster, _stages(fields["stages"]), batch, number)
    chains = [each.only(("stages",), ()) for each in fields["branches"].items()]
    branches = [
        _made(
            chain,
            partial(Plan, branch.chained, cluster, _stages(chain["stages"]), batch, number),
        )
        for chain, branch in zip(chains, model.branches, strict=False)
    ]
    if len(chains) != len(model.branches):
        raise PlanError(
            f"branches: {len(chains)} plans for the {len(model.branches)} branches of {model.name}; give one "
            "of each"
        )
    return JoinedPlan(model, tuple(branches), _built(fields["joined"], LayerStrategy, ()))


def _stages_to_list(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "gpus": [stage.gpus.start, stage.gpus.stop],
            "layers": [
                {"count": count, **_without_defaults(strategy)} for _, strategy, count in plan.runs(number)
            ],
        }
        for number, stage in enumerate(plan.stages)
    ]


def _stages(field: Field) -> tuple[StagePlan, ...]:
    stages, first = [], 0
    for stage in field.items():
        own = stage.only(("gpus", "layers"), ())
        gpus = own["gpus"].items()
        if len(gpus) != 2:
            raise own["gpus"].wrong("two numbers", "give the first GPU and the one after the last")
        begin, end = (_count(each, 0, _MOST_GPUS) for each in gpus)
        strategies = [each for entry in own["layers"].items() for each in _strategies(entry)]
        stages.append(StagePlan(range(begin, end), range(first, first + len(strategies)), tuple(strategies)))
        first += len(strategies)
    return tuple(stages)


def _model_to_dict(model: ModelShape) -> dict[str, Any]:
    names = {kind: name for name, kind in _LAYERS.items()}
    return {
        "name": model.name,
        "precision": model.precision.name,
        "runs": [
            {"count": count, "kind": names[type(layer)], **_without_defaults(layer)}
            for count, layer in model.runs
        ],
        "branches": [_model_to_dict(branch) for branch in model.branches],
    }


def _model(field: Field) -> ModelShape:
    own = field.only(("name", "precision", "runs"), ("branches",))
    precision = own["precision"].choice(tuple(PRECISIONS))
    runs = []
    for run in own["runs"].items():
        kind = _LAYERS[run["kind"].choice(tuple(_LAYERS))]
        runs.append((_count(run["count"], most=_MOST_LAYERS), _built(run, kind, ("count", "kind"))))
    branches = tuple(_model(each) for each in own.get("branches", []).items())
    made: ModelShape = _made(
        field, lambda: ModelShape(own["name"].text(), tuple(runs), PRECISIONS[precision], branches)
    )
    return made


def _cluster_to_dict(cluster: Cluster) -> dict[str, Any]:
    data = {field.name: getattr(cluster, field.name) for field in dataclasses.fields(cluster)}
    nodes = [
        {"gpu": _gpu_name(each.gpu), "num_nodes": each.num_nodes, "gpus_per_node": each.gpus_per_node}
        for each in cluster.nodes
    ]
    return data | {"nodes": nodes}


def _gpu_name(gpu: Gpu) -> str:
    for name, known in GPUS.items():
        if known == gpu:
            return name
    raise PlanError(
        f"cluster: {gpu.name!r} is none of the GPUs that a plan's file can name, or differs from it; use one "
        f"of {', '.join(GPUS)}"
    )


def _cluster(field: Field) -> Cluster:
    nodes = tuple(
        Nodes(
            GPUS[own["gpu"].choice(tuple(GPUS))],
            _count(own["num_nodes"], most=_MOST_GPUS),
            _count(own["gpus_per_node"], most=_MOST_GPUS),
        )
        for each in field["nodes"].items()
        for own in [each.only(("gpu", "num_nodes", "gpus_per_node"), ())]
    )
    built: Cluster = _built(field, Cluster, ("nodes",), nodes=nodes)
    return built


def _strategies(field: Field) -> list[LayerStrategy]:
    return [_built(field, LayerStrategy, ("count",))] * _count(field["count"], most=_MOST_LAYERS)


def _without_defaults(record: Any) -> dict[str, Any]:
    """Return the fields of a record that are not as by default."""
    return {
        field.name: getattr(record, field.name)
        for field in dataclasses.fields(record)
        if getattr(record, field.name) != field.default
    }


def _built(field: Field, kind: Callable[..., Any], others: tuple[str, ...], **given: Any) -> Any:
    """Build a record from the entries of a mapping, whose own checks say what is wrong."""
    known = {each.name: each for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    required = [
        name
        for name, each in known.items()
        if each.default is dataclasses.MISSING
        and each.default_factory is dataclasses.MISSING
        and name not in given
    ]
    own = field.only((*required, *others), tuple(name for name in known if name not in (*required, *given)))
    hints = get_type_hints(kind)
    values = {
        name: _typed(own[name], hints[name]) for name in known if name in own.value and name not in given
    }
    return _made(field, lambda: kind(**values, **given))


def _typed(field: Field, wanted: Any) -> Any:
    """Return a value of the type that a record's field has."""
    kinds = get_args(wanted) or (wanted,)
    if field.value is None and type(None) in kinds:
        return None
    if get_origin(wanted) is Literal:
        return field.choice(kinds)
    if kinds[0] is bool:
        if type(field.value) is not bool:
            raise field.wrong("true or false", "give one of them")
        return field.value
    if kinds[0] is int:
        return _count(field, 0)
    return field.number() if kinds[0] is float else field.text()


def _made(field: Field, make: Callable[[], Any]) -> Any:
    """Return what is made, or name the field whose content is wrong."""
    try:
        return make()
    except ValueError as error:
        raise PlanError(f"{field.where}: {error}") from None


def _count(field: Field, least: int = 1, most: int = _MOST) -> int:
    return field.whole(f"a whole number from {least} to {most}", least=least, most=most)
