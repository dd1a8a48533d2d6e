"""Plans as Galvatron's files: the ``galvatron_config_*.json`` of its search, which its runtime reads.

A list of numbers, one for each layer, is text with commas between. What a file leaves out has the value that
Galvatron's runtime gives it. Strategies that blocks cannot have are refused by name: Ulysses and context
parallelism of layers, experts, and tensor-parallel GPUs that are not neighbors. Galvatron has one stage of
ZeRO for all layers that are not ZeRO-3, and gives the output layer the embedding's strategy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Annotated, Literal

from placements.block import PlacementError
from placements.cluster import Cluster
from placements.forms.meaning import Meaning
from placements.forms.reading import Field
from placements.models.chain import ModelShape
from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.plan import Plan, PlanError
from placements.trainers.as_run import PlanExport, Planned, with_strategies

_ZERO = {"ddp": 0, "zero2": 2, "zero3": 3}
"""ZeRO's stage by the name of ``default_dp_type``."""

_MANY = range(1, 10**9)
_FLAGS = range(2)

_LAYERS: dict[str, tuple[Callable[[LayerStrategy], int], str, range]] = {
    "tp_sizes_enc": (lambda how: how.tensor_parallel, "", _MANY),
    "tp_consecutive_flags": (lambda how: how.tensor_innermost, "1", _FLAGS),
    "dp_types_enc": (lambda how: how.zero == 3, "0", _FLAGS),
    "use_sp": (lambda how: how.sequence == "ulysses", "0", _FLAGS),
    "checkpoint": (lambda how: how.recompute == "full", "0", _FLAGS),
}
"""Lists with a number for each layer: its strategy's, the one without the list, and all that there are."""

_ONES = dict.fromkeys(("cp_sizes_enc", "ep_sizes_enc", "tp_of_ep_sizes_enc"), (int, "1", range(1, 2)))
"""Lists that are not written, and must have a one for each layer."""

_Flag = Literal[0, 1]
_List = Field | None


@dataclass(frozen=True)
class GalvatronForm:
    """The fields of a plan's file; lists are text with commas between their numbers."""

    pp_deg: Annotated[int, Meaning("stages", min=1)]
    tp_sizes_enc: Annotated[Field, Meaning("list: tensor-parallel size of each layer")]
    dp_types_enc: Annotated[Field, Meaning("list: 1 for a layer with ZeRO-3")]
    global_bsz: Annotated[int, Meaning("samples of an iteration", min=1)]
    chunks: Annotated[int, Meaning("micro-batches of an iteration", min=1)]
    checkpoint: Annotated[_List, Meaning("list: 1 for a layer that is computed again")] = None
    use_sp: Annotated[_List, Meaning("list: 1 for a layer with Ulysses, which blocks cannot have")] = None
    tp_consecutive_flags: Annotated[_List, Meaning("list: 1, unless all GPUs share the layer")] = None
    cp_sizes_enc: Annotated[_List, Meaning("list: 1, as blocks do not share context")] = None
    ep_sizes_enc: Annotated[_List, Meaning("list: 1, as blocks do not share experts")] = None
    tp_of_ep_sizes_enc: Annotated[_List, Meaning("list: 1, likewise")] = None
    pp_division: Annotated[_List, Meaning("list: layers of each stage; else equal ones")] = None
    pipeline_type: Annotated[Literal["gpipe", "pipedream_flush"], Meaning("not used")] = "pipedream_flush"
    default_dp_type: Annotated[Literal["ddp", "zero2", "zero3"], Meaning("other layers' states")] = "ddp"
    vtp: Annotated[int, Meaning("GPUs that share embedding and output layer", min=1)] = 1
    vsp: Annotated[_Flag, Meaning("whether these share by tokens")] = 0
    vcp: Annotated[Literal[1], Meaning("GPUs that share the context of both")] = 1
    embed_sdp: Annotated[_Flag, Meaning("whether both have ZeRO-3")] = 0
    world_size: Annotated[int | None, Meaning("GPUs in all; required here or as an option", min=1)] = None


def galvatron_plan(
    data: object,
    model: Callable[[int], ModelShape],
    cluster: Callable[[int], Cluster],
    world_size: int | None = None,
) -> Plan:
    """Build a plan from its file form.

    Args:
        data: The plain data.
        model: Makes the model of the number of its transformer layers; the file has no other size.
        cluster: Makes the cluster of the number of its GPUs.
        world_size: GPUs of all stages together; None where the file says it.

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
    _require(
        world_size in (None, total),
        f"world_size: {total} is not the {world_size} of placement.world_size; give one of them",
    )
    num_gpus = _part(total, form.pp_deg, "pp_deg", "GPUs of world_size")
    samples = _part(form.global_bsz, form.chunks, "chunks", "samples of global_bsz")
    num_layers = len(_numbers(form.tp_sizes_enc, _MANY))
    division = _division(form, num_layers)
    lists = [
        _numbers(fields.get(name, ",".join([default] * num_layers)), known, num_layers)
        for name, (_, default, known) in (_LAYERS | _ONES).items()
    ]

    def shared(where: str, size: int, is_zero_3: int, is_ulysses: int = 0) -> LayerStrategy:
        groups = _part(num_gpus, size, where, "GPUs of a stage")
        _part(samples, groups, f"{where}: data-parallel groups", "samples of a micro-batch")
        zero = 3 if is_zero_3 else _ZERO[form.default_dp_type]
        return LayerStrategy(size, groups, zero, sequence="ulysses" if is_ulysses else "none")

    inner_ways = list[LayerStrategy]()
    for i, (size, is_next, is_zero_3, is_ulysses, again, *_) in enumerate(zip(*lists, strict=True)):
        way = shared(f"tp_sizes_enc[{i}]", size, is_zero_3)
        inner_ways.append(replace(way, recompute="full" if again else "none"))
        _require(
            size == 1 or not is_ulysses,
            f"use_sp[{i}]: {size} GPUs share the sequence (Ulysses), which blocks cannot; use 0",
        )
        _require(
            size in (1, num_gpus) or is_next == 1,
            f"tp_consecutive_flags[{i}]: 0 has tensor-parallel GPUs that are not neighbors; use 1",
        )
    shape = model(num_layers)
    inner = [i for i, layer in enumerate(shape.layers) if isinstance(layer, TransformerLayer)]
    _require(
        len(inner) == num_layers,
        f"num_layers: {len(inner)} is not the {num_layers} layers of the plan; give as many, or another plan",
    )
    cuts = [0, *(inner[count] for count in list(accumulate(division))[:-1]), len(shape.layers)]
    counts = [last - first for first, last in pairwise(cuts)]
    ways = [shared("vtp", form.vtp, form.embed_sdp, form.vsp)] * len(shape.layers)
    for way, (i, end) in zip(inner_ways, pairwise([*inner, inner[-1] + 1]), strict=True):
        ways[i:end] = [way] * (end - i)  # what is between two is shared as the first
    plan = Plan.of_sizes(shape, cluster(total), counts, ways, form.global_bsz, form.chunks)
    return replace(plan, output_joins=True)


def galvatron_fields(plan: Plan) -> dict[str, int | str]:
    """Return the file form of a plan of a transformer or of measured blocks as plain data.

    Raises:
        PlanError: The plan has no transformer layer, stages of different numbers of GPUs or without such a
            layer, or context parallelism.
    """
    inner, strategies = plan.inner_layers(), plan.strategies
    sizes = sorted({len(stage.gpus) for stage in plan.stages})
    _require(
        bool(inner), f"model: {plan.model.name} has no transformer layer; this form is of transformers alone"
    )
    _require(
        all(how.context_parallel == 1 for how in strategies),
        "context_parallel: is above 1, but Galvatron's plans here are without; export another plan",
    )
    _require(
        len(sizes) == 1,
        f"stages: have {' and '.join(map(str, sizes))} GPUs, but Galvatron's all have as many; export "
        "another plan",
    )
    division = [len(plan.inner_layers(stage.layers)) for stage in plan.stages]
    _require(0 not in division, f"pp_division: {_text(division)} has stages without layers; give each one")
    first = strategies[0]
    zero = max((how.zero for how in strategies if how.zero < 3), default=0)
    return {
        "pp_deg": plan.num_stages,
        **{name: _text(int(of(strategies[i])) for i in inner) for name, (of, _, _) in _LAYERS.items()},
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
    """Return the export of a plan for Galvatron's runtime.

    Raises:
        PlanError: See `galvatron_fields`; or it has several chunks, or Galvatron's plan cannot be shared so
            or does not fit.
    """
    plan = planned.plan
    _require(len(planned.chunks or ()) <= plan.num_stages, "its plans have no loop_shape")
    as_run, lost = _as_run(plan)
    fields = galvatron_fields(as_run)
    try:
        run = planned.rate(as_run)
    except PlacementError as error:
        raise PlanError(str(error)) from None
    remedy = "plan with expert_parallel=[1] and recompute=[none,full]"
    fits, words = planned._replace(remedy=remedy).fullest(run)
    _require(fits, f"memory: as Galvatron shares the layers, {words}")
    return PlanExport(json.dumps(fields, indent=2) + "\n", run, (*planned.differences(run), *lost))


def _as_run(plan: Plan) -> tuple[Plan, list[str]]:
    """Return a plan as Galvatron runs it, and a line on each feature that Galvatron has no form for."""
    strategies, last = list(plan.strategies), len(plan.strategies) - 1
    zeros = {how.zero for how in strategies}
    mixed = len({how.zero for how in strategies if how.zero < 3 and how.weight_copies.degree > 1}) > 1
    first, end = ((how.tensor_parallel, how.sequence, how.zero) for how in (strategies[0], strategies[-1]))
    is_selective = any(how.recompute == "selective" for how in strategies)
    has_experts = any(how.expert_parallel > 1 for how in strategies)
    used = plan.num_gpus
    lost = (
        (is_selective, "selective recomputation: Galvatron recomputes whole layers or nothing"),
        (1 in zeros, "ZeRO-1: Galvatron has ZeRO-2 or none beside ZeRO-3; ZeRO-2 is written"),
        (mixed, "different ZeRO stages below 3: Galvatron has one of them; ZeRO-2 is written for all"),
        (has_experts, "expert parallel degrees: its search does not write them"),
        (first != end, "the output layer's strategy: Galvatron gives it the embedding's"),
        (used < plan.cluster.num_gpus, f"idle GPUs: world_size is the {used} that are used"),
    )
    if first != end and last not in plan.inner_layers():
        strategies[last] = strategies[0]
    for i, how in enumerate(strategies):
        zero = 3 if how.zero == 3 else 2 if zeros & {1, 2} else 0
        recompute = "none" if how.recompute == "selective" else how.recompute
        strategies[i] = replace(how, zero=zero, recompute=recompute, expert_parallel=1)
    return with_strategies(plan, strategies), [line for is_lost, line in lost if is_lost]


def _require(is_right: bool, message: str) -> None:
    if not is_right:
        raise PlanError(message)


def _part(total: int, count: int, where: str, what: str) -> int:
    """Return the even share of a total for each of `count` parts."""
    _require(total % count == 0, f"{where}: {count} does not divide the {total} {what}; give a divisor")
    return total // count


def _division(form: GalvatronForm, num_layers: int) -> list[int]:
    """Return the layers of each stage; without ``pp_division`` equal numbers, and the rest on the last."""
    num_stages, count = form.pp_deg, num_layers // form.pp_deg
    if form.pp_division is None:
        _require(count > 0, f"pp_deg: {num_stages} is more than the {num_layers} layers; give at most these")
        return [count] * (num_stages - 1) + [num_layers - count * (num_stages - 1)]
    division = _numbers(form.pp_division, _MANY)
    _require(
        len(division) == num_stages,
        f"pp_division: has {len(division)} entries for pp_deg {num_stages}; give the layers of each stage",
    )
    _require(
        sum(division) == num_layers,
        f"pp_division: {_text(division)} sums to {sum(division)}, but tp_sizes_enc has {num_layers} layers; "
        "give each layer to one stage",
    )
    return division


def _numbers(field: Field, known: range, count: int | None = None) -> list[int]:
    """Return the numbers of a comma-separated text: `count` numbers, one for each layer, if given."""
    texts = field.text("text", 'give whole numbers with commas between, as in "1,2"').split(",")
    for i, text in enumerate(texts):
        if not (re.fullmatch(r"\s*[0-9]{1,9}\s*", text) and int(text) in known):
            wanted = f"{known[0]}" if len(known) == 1 else f"a whole number from {known[0]} to {known[-1]}"
            raise field.inside(i, text).wrong(wanted, "give numbers with commas between")
    _require(
        count in (None, len(texts)),
        f"{field.where}: has {len(texts)} entries, but tp_sizes_enc {count}; give one for each layer",
    )
    return list(map(int, texts))


def _text(numbers: Iterable[int]) -> str:
    return ",".join(str(number) for number in numbers)
