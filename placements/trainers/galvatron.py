"""Plans as Galvatron's files: the ``galvatron_config_*.json`` that its search writes and its runtime reads.

A list of numbers, one for each layer, is text with commas between. What a file leaves out has the value that
Galvatron's runtime gives it. Strategies that blocks cannot have are refused by name: Ulysses and context
parallelism of layers, experts, and tensor-parallel GPUs that are not neighbors. Galvatron has one stage of
ZeRO for all layers that are not ZeRO-3, and gives the output layer the embedding's strategy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Literal

from placements.block import PlacementError
from placements.cluster import Cluster
from placements.forms.meaning import Meaning
from placements.forms.reading import Field, json_file
from placements.models.chain import ModelShape
from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.plan import Plan, PlanError
from placements.trainers.as_run import PlanExport, Planned

_ZERO = {"ddp": 0, "zero2": 2, "zero3": 3}
"""ZeRO's stage by the name of ``default_dp_type``."""

_Flag = Literal[0, 1]

_FLAGS = {"dp_types_enc": 0, "checkpoint": 0, "use_sp": 0, "tp_consecutive_flags": 1}
"""Lists of zeros and ones, one for each layer, and what all layers have where the file has none."""

_ONES = ("cp_sizes_enc", "ep_sizes_enc", "tp_of_ep_sizes_enc")
"""Lists that must have a one for each layer."""


@dataclass(frozen=True)
class GalvatronForm:
    """The fields of a plan's file; lists are text with commas between their numbers."""

    pp_deg: Annotated[int, Meaning("stages", min=1)]
    tp_sizes_enc: Annotated[Field, Meaning("list: tensor-parallel size of each layer")]
    dp_types_enc: Annotated[Field, Meaning("list: 1 for a layer with ZeRO-3")]
    global_bsz: Annotated[int, Meaning("samples of an iteration", min=1)]
    chunks: Annotated[int, Meaning("micro-batches of an iteration", min=1)]
    checkpoint: Annotated[Field | None, Meaning("list: 1 for a layer that is computed again")] = None
    use_sp: Annotated[Field | None, Meaning("list: 1 for a layer with Ulysses, which blocks cannot have")] = (
        None
    )
    tp_consecutive_flags: Annotated[
        Field | None, Meaning("list: 1, unless all GPUs of a stage share the layer")
    ] = None
    cp_sizes_enc: Annotated[Field | None, Meaning("list: 1, as blocks do not share context")] = None
    ep_sizes_enc: Annotated[Field | None, Meaning("list: 1, as blocks do not share experts")] = None
    tp_of_ep_sizes_enc: Annotated[Field | None, Meaning("list: 1, likewise")] = None
    pp_division: Annotated[
        Field | None, Meaning("list: layers of each stage; without it equal, the rest on the last")
    ] = None
    pipeline_type: Annotated[
        Literal["gpipe", "pipedream_flush"], Meaning("schedule that the planner assumed; not used")
    ] = "pipedream_flush"
    default_dp_type: Annotated[
        Literal["ddp", "zero2", "zero3"], Meaning("how the other layers' states are shared")
    ] = "ddp"
    vtp: Annotated[int, Meaning("GPUs that share embedding and output layer", min=1)] = 1
    vsp: Annotated[_Flag, Meaning("whether these share by tokens")] = 0
    vcp: Annotated[Literal[1], Meaning("GPUs that share the context of both")] = 1
    embed_sdp: Annotated[_Flag, Meaning("whether both have ZeRO-3")] = 0
    world_size: Annotated[int | None, Meaning("GPUs in all; required here or as an option", min=1)] = None


def read_galvatron(
    path: str | Path,
    model: Callable[[int], ModelShape],
    cluster: Callable[[int], Cluster],
    world_size: int | None = None,
) -> Plan:
    """Read a plan from a JSON file.

    Args:
        path: The file.
        model: Makes the model of the number of its transformer layers; the file has no other size.
        cluster: Makes the cluster of the number of its GPUs.
        world_size: GPUs of all stages together; None where the file says it.

    Raises:
        PlanError: The file cannot be read or is wrong; the message begins with its path.
    """
    with json_file(path, "a galvatron_config_*.json", PlanError) as data:
        return galvatron_plan(data.value, model, cluster, world_size)


def galvatron_plan(
    data: object,
    model: Callable[[int], ModelShape],
    cluster: Callable[[int], Cluster],
    world_size: int | None = None,
) -> Plan:
    """Build a plan from its file form; see `read_galvatron`.

    Raises:
        PlanError: A field is missing, unknown, of the wrong type or refused, or a rule is broken.
    """
    fields = Field(data, "plan", PlanError, is_root=True)
    form = fields.record(GalvatronForm)
    total = form.world_size or world_size
    if total is None:
        raise PlanError(
            "world_size: is missing; give the number of all GPUs, in the file or as placement.world_size"
        )
    if world_size not in (None, total):
        raise PlanError(
            f"world_size: {total} is not the {world_size} of placement.world_size; give one of them"
        )
    if total % form.pp_deg:
        raise PlanError(
            f"pp_deg: {form.pp_deg} does not divide the {total} GPUs of world_size; use a divisor"
        )
    num_gpus, sizes = total // form.pp_deg, _numbers(form.tp_sizes_enc)
    division = _division(form, len(sizes))
    flags = {
        name: [each.typed(_Flag) for each in _of_layers(fields, name, len(sizes), default)]
        for name, default in _FLAGS.items()
    }
    for name in _ONES:
        for each in _of_layers(fields, name, len(sizes), 1):
            each.whole("1", "blocks share neither context nor experts", 1, 1)
    zero = _ZERO[form.default_dp_type]
    strategies = []
    for i, size in enumerate(each.value for each in sizes):
        groups = _groups(f"tp_sizes_enc[{i}]", size, num_gpus, form)
        if size > 1 and flags["use_sp"][i]:
            raise PlanError(
                f"use_sp[{i}]: {size} GPUs share the sequence (Ulysses), which blocks cannot; use tensor "
                "parallelism, with 0"
            )
        if 1 < size < num_gpus and not flags["tp_consecutive_flags"][i]:
            raise PlanError(
                f"tp_consecutive_flags[{i}]: 0 has tensor-parallel GPUs that are not neighbors, which blocks "
                "cannot; use 1"
            )
        own, again = 3 if flags["dp_types_enc"][i] else zero, flags["checkpoint"][i]
        strategies.append(LayerStrategy(size, groups, own, "full" if again else "none"))
    ends = LayerStrategy(
        form.vtp,
        _groups("vtp", form.vtp, num_gpus, form),
        3 if form.embed_sdp else zero,
        sequence="ulysses" if form.vsp else "none",
    )
    shape = model(len(sizes))
    inner = [i for i, layer in enumerate(shape.layers) if isinstance(layer, TransformerLayer)]
    if len(inner) != len(sizes):
        raise PlanError(
            f"num_layers: {len(inner)} is not the {len(sizes)} layers of the plan; give as many, or another "
            "plan"
        )
    cuts = [0, *(inner[count] for count in list(accumulate(division))[:-1]), len(shape.layers)]
    counts = [last - first for first, last in pairwise(cuts)]
    by_layer = dict(zip(inner, strategies, strict=True))
    ways = [ends] * len(shape.layers)
    for i in range(inner[0], inner[-1] + 1):
        ways[i] = by_layer.get(i, ways[i - 1])  # what is between two is shared as the first
    plan = Plan.of_sizes(shape, cluster(total), counts, ways, form.global_bsz, form.chunks)
    return replace(plan, output_joins=True)


def galvatron_fields(plan: Plan) -> dict[str, int | str]:
    """Return the file form of a plan of a transformer or of measured blocks as plain data.

    Raises:
        PlanError: It has no transformer layer, stages of different numbers of GPUs or without such a layer,
            or context parallelism.
    """
    inner, strategies = plan.inner_layers(), plan.strategies
    if not inner:
        raise PlanError(
            f"model: {plan.model.name} has no transformer layer; this form is of transformers alone"
        )
    if any(strategy.context_parallel > 1 for strategy in strategies):
        raise PlanError(
            "context_parallel: is above 1, but Galvatron's plans here are without; export another plan"
        )
    sizes = {len(stage.gpus) for stage in plan.stages}
    if len(sizes) > 1:
        listed = " and ".join(map(str, sorted(sizes)))
        raise PlanError(f"stages: have {listed} GPUs, but Galvatron's all have as many; export another plan")
    division = [sum(i in inner for i in stage.layers) for stage in plan.stages]
    if 0 in division:
        raise PlanError(f"pp_division[{division.index(0)}]: 0 is not at least 1 layer; give each stage one")
    first, chosen = strategies[0], [strategies[i] for i in inner]
    zero = max((each.zero for each in strategies if each.zero < 3), default=0)
    return {
        "pp_deg": plan.num_stages,
        "tp_sizes_enc": _text(each.tensor_parallel for each in chosen),
        "tp_consecutive_flags": _text(int(each.tensor_innermost) for each in chosen),
        "dp_types_enc": _text(int(each.zero == 3) for each in chosen),
        "use_sp": _text(int(each.sequence == "ulysses") for each in chosen),
        "checkpoint": _text(int(each.recompute == "full") for each in chosen),
        "global_bsz": plan.global_batch_size,
        "chunks": plan.num_micro_batches,
        "pp_division": _text(division),
        "pipeline_type": "pipedream_flush",
        "default_dp_type": next(name for name, stage in _ZERO.items() if stage == zero),
        "vtp": first.tensor_parallel,
        "vsp": int(first.sequence == "ulysses"),
        "embed_sdp": int(first.zero == 3),
        "world_size": plan.num_gpus,
    }


def to_galvatron(planned: Planned) -> PlanExport:
    """Return a plan as Galvatron's runtime reads it.

    Raises:
        PlanError: See `galvatron_fields`; or it has several chunks, or what would be run cannot be shared so
            or does not fit.
    """
    plan = planned.plan
    if len(planned.chunks or ()) > plan.num_stages:
        raise PlanError("its plans have no loop_shape")
    as_run = _as_run(plan)
    fields = galvatron_fields(as_run)
    try:
        run = planned.rate(as_run)
    except PlacementError as error:
        raise PlanError(str(error)) from None
    if not planned.fits(run):
        remedy = "plan with expert_parallel=[1] and recompute=[none,full]"
        raise PlanError(f"memory: as Galvatron shares the layers, {planned.fullest(run)}; {remedy}")
    differs = (*planned.differences(run), *_lost(plan))
    return PlanExport(json.dumps(fields, indent=2) + "\n", run, differs)


def _numbers(field: Field) -> list[Field]:
    """Return the numbers of a text, whose commas are between them."""
    text = field.text("text", 'give whole numbers with commas between, as in "1,2"')
    items = [field.inside(i, item) for i, item in enumerate(text.split(","))]
    for item in items:
        if not (item.value.strip().isascii() and item.value.strip().isdigit() and len(item.value) < 10):
            raise item.wrong("a whole number of 0 or more", "give numbers with commas between")
    return [replace(item, value=int(item.value)) for item in items]


def _of_layers(fields: Field, name: str, count: int, default: int) -> list[Field]:
    """Return a number for each layer."""
    if name not in fields.value:
        return [fields.inside(name, default)] * count
    values = _numbers(fields[name])
    if len(values) != count:
        raise PlanError(
            f"{name}: has {len(values)} entries, but tp_sizes_enc {count}; give one for each layer"
        )
    return values


def _division(form: GalvatronForm, num_layers: int) -> list[int]:
    """Return the layers of each stage; without ``pp_division`` the same, and the rest on the last."""
    num_stages = form.pp_deg
    if form.pp_division is None:
        each = num_layers // num_stages
        if each == 0:
            raise PlanError(f"pp_deg: {num_stages} is more than the {num_layers} layers; give at most these")
        return [each] * (num_stages - 1) + [num_layers - each * (num_stages - 1)]
    division = [layers.value for layers in _numbers(form.pp_division)]
    if len(division) != num_stages:
        raise PlanError(
            f"pp_division: has {len(division)} entries for pp_deg {num_stages}; give the layers of each stage"
        )
    if sum(division) != num_layers:
        raise PlanError(
            f"pp_division: {_text(division)} sums to {sum(division)}, but tp_sizes_enc has {num_layers} "
            "layers; give each layer to one stage"
        )
    if 0 in division:
        raise PlanError(f"pp_division[{division.index(0)}]: 0 is not at least 1 layer; give each stage one")
    return division


def _groups(where: str, degree: int, num_gpus: int, form: GalvatronForm) -> int:
    """Return the data-parallel groups of a stage in which so many GPUs share a layer."""
    if degree < 1 or num_gpus % degree:
        raise PlanError(f"{where}: {degree} does not divide the {num_gpus} GPUs of a stage; give a divisor")
    if form.global_bsz % form.chunks:
        raise PlanError(
            f"chunks: {form.chunks} does not divide global_bsz {form.global_bsz}; give a divisor, so that "
            "all micro-batches have the same size"
        )
    groups, samples = num_gpus // degree, form.global_bsz // form.chunks
    if samples % groups:
        raise PlanError(
            f"{where}: leaves {groups} data-parallel groups, which do not divide the {samples} samples of a "
            "micro-batch (global_bsz / chunks); change one of them"
        )
    return groups


def _as_run(plan: Plan) -> Plan:
    """Return a plan as Galvatron runs it."""
    zero = 2 if any(each.zero in (1, 2) for each in plan.strategies) else 0
    last = len(plan.strategies) - 1
    head = {last: plan.strategies[0]} if _ends_differ(plan) and last not in plan.inner_layers() else {}

    def changed(i: int, how: LayerStrategy) -> LayerStrategy:
        how = head.get(i, how)
        recompute = "none" if how.recompute == "selective" else how.recompute
        return replace(how, zero=3 if how.zero == 3 else zero, recompute=recompute, expert_parallel=1)

    pairs = ((stage, zip(stage.layers, stage.strategies, strict=True)) for stage in plan.stages)
    stages = (replace(stage, strategies=tuple(changed(*each) for each in own)) for stage, own in pairs)
    return replace(plan, stages=tuple(stages))


def _lost(plan: Plan) -> Iterator[str]:
    strategies = plan.strategies
    if any(each.recompute == "selective" for each in strategies):
        yield "selective recomputation: Galvatron recomputes whole layers or nothing"
    if any(each.zero == 1 for each in strategies):
        yield "ZeRO-1: Galvatron has ZeRO-2 or none beside ZeRO-3; ZeRO-2 is written"
    if len({each.zero for each in strategies if each.zero < 3 and each.weight_copies.degree > 1}) > 1:
        yield "different ZeRO stages below 3: Galvatron has one of them; ZeRO-2 is written for all"
    if any(each.expert_parallel > 1 for each in strategies):
        yield "expert parallel degrees: its search does not write them"
    if _ends_differ(plan):
        yield "the output layer's strategy: Galvatron gives it the embedding's"
    if plan.num_gpus < plan.cluster.num_gpus:
        yield f"idle GPUs: world_size is the {plan.num_gpus} that are used"


def _ends_differ(plan: Plan) -> bool:
    first, last = plan.strategies[0], plan.strategies[-1]
    return (first.tensor_parallel, first.sequence, first.zero) != (
        last.tensor_parallel,
        last.sequence,
        last.zero,
    )


def _text(numbers: Iterable[int]) -> str:
    return ",".join(str(number) for number in numbers)
