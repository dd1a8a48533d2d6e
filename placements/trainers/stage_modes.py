"""Modes of a job's stages, as a search decides them, and the part of them that a trainer can say.

The module knows no trainer's words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from placements.block import COMPUTE, Kind
from placements.modes import Chosen
from placements.spec import Placement
from placements.trainers.job import StageMode, TrainerJob
from placements.trainers.layout import LAYER, LayoutError

_NAME = re.compile(r"keep|selective|offload|recompute( [1-9][0-9]{0,4})?")
_VERBS = {"recompute": "recompute", "selective": "recompute parts of layers", "offload": "offload"}


class ModeError(LayoutError):
    """A trainer has no words for some modes; the message goes on from the trainer's name."""


def modes_by_stage(job: TrainerJob) -> tuple[StageMode, ...]:
    """Return the mode of each virtual stage.

    Raises:
        ModeError: Micro-batches of a stage have different modes.
    """
    if differ := [i for i, row in enumerate(job.stage_modes) if len(set(row)) > 1]:
        raise ModeError(f"cannot choose by micro-batch, as in {_stages(differ)}")
    return tuple(row[0] for row in job.stage_modes)


def common_mode(job: TrainerJob) -> StageMode:
    """Return the mode of all stages, of which each has its number of layers, or all that there are.

    Raises:
        ModeError: Stages or micro-batches have different modes.
    """
    pairs = zip(modes_by_stage(job), job.num_layers, strict=True)
    filled = {i: (mode, count) for i, (mode, count) in enumerate(pairs) if count}
    most = max((mode for mode, _ in filled.values()), key=lambda mode: mode.layers, default=StageMode())
    if all(mode == (most.kind, min(most.layers, count)) for mode, count in filled.values()):
        return most
    verb, stages = _VERBS[most.kind], [i for i, (mode, _) in filled.items() if mode.kind == most.kind]
    if len(stages) < len(filled):
        raise ModeError(f"cannot {verb} in {_stages(stages)} alone")
    numbers = ", ".join(str(filled[i][0].layers) for i in stages)
    raise ModeError(f"cannot {verb} {numbers} layers of its stages, but as many in each")


def recomputed_layers(job: TrainerJob) -> list[int]:
    """Return the numbers of the transformer layers that are recomputed, from 0 over the model.

    Raises:
        ModeError: Micro-batches of a stage have different modes, or there are other modes.
    """
    require_recompute(job)
    stages = ([number for part, number in stage if part == LAYER] for stage in job.stages.numbered)
    modes = modes_by_stage(job)
    return [number for numbers, mode in zip(stages, modes, strict=True) for number in numbers[: mode.layers]]


def require_recompute(job: TrainerJob) -> None:
    """Raise a `ModeError` where a stage neither keeps activations nor recomputes whole layers."""
    is_mixed = len({mode.kind for row in job.stage_modes for mode in row}) > 1
    for kind in ("selective", "offload"):
        if wrong := [i for i, row in enumerate(job.stage_modes) if any(mode.kind == kind for mode in row)]:
            raise ModeError(f"cannot {_VERBS[kind]} in {_stages(wrong)}{' beside other modes' * is_mixed}")


def _stages(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"stages {', '.join(first)} and {last}" if first else f"stage {last}"


def chosen_modes(
    placement: Placement, chosen: Sequence[Chosen], job: TrainerJob, order: Sequence[int]
) -> tuple[tuple[StageMode, ...], ...]:
    """Return the mode of each micro-batch on each stage of a job; stages without decisions are as in the job.

    Names of modes are ``keep``, ``selective``, ``offload``, ``recompute``, or of 3 layers ``recompute 3``.
    The placement is a chain of stages, of which stage i is on device i modulo the devices; `order` has the
    micro-batches as their forwards come.

    Raises:
        LayoutError: The placement is no such chain, or a mode has another name.
    """
    ordered = [block for block in placement.topological_order if block.kind is Kind.F]
    stages = [block for block in ordered if block.stream == COMPUTE]
    if [block.devices for block in stages] != [(i % job.stages.num_devices,) for i in range(len(job.modes))]:
        raise LayoutError(
            f"{placement.name}: its {len(stages)} forward blocks are not the {len(job.stages.stages)} stages "
            f"of the layout, of which stage i is on rank i modulo {job.stages.num_devices}; use v_shape or "
            "loop_shape, and give search.layout with a stage for each block"
        )
    rows = list(job.modes)
    for number, decision in enumerate(placement.decisions):
        for name in decision.names:
            if not _NAME.fullmatch(name):
                known = "keep, recompute, selective, offload, or as recompute 3"
                raise LayoutError(f"modes[{number}]: {name!r} is unknown to trainers; name it {known}")
        copied = {name for block in decision.blocks for name in placement.by_name[block].after}
        decided = [i for i, block in enumerate(stages) if block.name in decision.blocks]
        for i in decided or [i for i, block in enumerate(stages) if block.name in copied]:
            most = job.num_layers[i]
            parts = [decision.names[chosen[n][number]].partition(" ") for n in order]
            counts = [0 if kind == "keep" else min(int(count or most), most) for kind, _, count in parts]
            rows[i] = tuple(StageMode(part[0], count) for part, count in zip(parts, counts, strict=True))  # type: ignore[arg-type]
    return tuple(rows)
