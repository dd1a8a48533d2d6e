"""A parallel plan: stages of layers, and how the GPUs of a stage share each layer. Any planner may make one.

The module knows the rules of a plan, in the terms of Galvatron's files. It does not know what layers cost.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from placements.models.parallel import LayerStrategy, VocabularyStrategy


class PlanError(ValueError):
    """A plan is wrong; the message names the field of the file, the value and the remedy in one line."""


class UnsuitableShapeError(PlanError):
    """A model has no plan of a shape.

    Attributes:
        reason: What the shape needs, and the remedy, without its name.
    """

    def __init__(self, shape: str, reason: str) -> None:
        super().__init__(shape, reason)
        self.reason = reason

    def __str__(self) -> str:
        return "shapes: " + " ".join(self.args)


class LayerPiece(NamedTuple):
    """Consecutive layers of one stage with one layout: what becomes a forward and a backward block.

    Attributes:
        stage: From 0.
        layers: Their indices; at least one.
    """

    stage: int
    layers: range


@dataclass(frozen=True)
class ParallelPlan:
    """Decisions of a planner for a transformer (Galvatron-BMW, Sec. III).

    Attributes:
        num_gpus: GPUs of a stage; all stages have the same number.
        stage_layers: Number of layers of each stage, at least one.
        layers: The strategy of each layer; GPUs that are neighbors share it (tensor parallel).
        vocabulary: The strategy of the embedding, on the first stage, and of the output layer, on the last.
        global_batch_size: Samples of an iteration.
        num_micro_batches: Micro-batches of an iteration, all of the same size.
        pipeline_type: The schedule that the planner assumed: ``gpipe`` or ``pipedream_flush`` (1F1B).
        default_zero: ZeRO's stage of the layers that the planner did not choose ZeRO-3 for; 0, 2 or 3.

    Raises:
        PlanError: A rule is broken.
    """

    num_gpus: int
    stage_layers: tuple[int, ...]
    layers: tuple[LayerStrategy, ...]
    vocabulary: VocabularyStrategy
    global_batch_size: int
    num_micro_batches: int
    pipeline_type: str = "pipedream_flush"
    default_zero: int = 0

    def __post_init__(self) -> None:
        """Check that layers, GPUs and samples divide."""
        _check_stages(self)
        _check_strategies(self)
        _check_samples(self)

    @property
    def num_stages(self) -> int:
        """How many stages there are."""
        return len(self.stage_layers)

    @property
    def micro_batch_size(self) -> int:
        """Samples of one micro-batch, of all data-parallel groups together."""
        return self.global_batch_size // self.num_micro_batches

    @cached_property
    def pieces(self) -> tuple[LayerPiece, ...]:
        """The layers in order, cut between stages and where tensor parallelism or recomputation changes."""
        stages = itertools.chain.from_iterable(
            itertools.repeat(stage, count) for stage, count in enumerate(self.stage_layers)
        )
        keys = [
            (stage, layer.tensor_parallel, layer.recompute)
            for stage, layer in zip(stages, self.layers, strict=True)
        ]
        cuts = [i for i in range(1, len(keys)) if keys[i] != keys[i - 1]]
        return tuple(
            LayerPiece(keys[first][0], range(first, end))
            for first, end in itertools.pairwise([0, *cuts, len(keys)])
        )


def _check_stages(plan: ParallelPlan) -> None:
    if sum(plan.stage_layers) != len(plan.layers):
        raise PlanError(
            f"pp_division: {_listed(plan.stage_layers)} sums to {sum(plan.stage_layers)}, but tp_sizes_enc "
            f"has {len(plan.layers)} layers; give each layer to one stage"
        )
    for stage, count in enumerate(plan.stage_layers):
        if count < 1:
            raise PlanError(f"pp_division[{stage}]: {count} is not at least 1 layer; give each stage one")
    if plan.num_gpus < 1:
        raise PlanError(f"world_size: leaves {plan.num_gpus} GPUs for a stage; give at least one")


def _check_strategies(plan: ParallelPlan) -> None:
    for i, layer in enumerate(plan.layers):
        _check_divides(f"tp_sizes_enc[{i}]", layer.tensor_parallel, plan.num_gpus)
        if layer.tensor_parallel * layer.data_parallel != plan.num_gpus:
            raise PlanError(
                f"tp_sizes_enc[{i}]: {layer.tensor_parallel} GPUs in each of {layer.data_parallel} "
                f"data-parallel groups are not the {plan.num_gpus} of a stage; make the product equal"
            )
    _check_divides("vtp", plan.vocabulary.parallel, plan.num_gpus)


def _check_divides(where: str, degree: int, num_gpus: int) -> None:
    if degree < 1 or num_gpus % degree:
        raise PlanError(f"{where}: {degree} does not divide the {num_gpus} GPUs of a stage; give a divisor")


def _check_samples(plan: ParallelPlan) -> None:
    if plan.num_micro_batches < 1 or plan.global_batch_size % plan.num_micro_batches:
        raise PlanError(
            f"chunks: {plan.num_micro_batches} does not divide global_bsz {plan.global_batch_size}; "
            "give a divisor, so that all micro-batches have the same size"
        )
    groups = {f"tp_sizes_enc[{i}]": layer.data_parallel for i, layer in enumerate(plan.layers)}
    groups["vtp"] = plan.num_gpus // plan.vocabulary.parallel
    for where, count in groups.items():
        if plan.micro_batch_size % count:
            raise PlanError(
                f"{where}: leaves {count} data-parallel groups, which do not divide the "
                f"{plan.micro_batch_size} samples of a micro-batch (global_bsz / chunks); change one of them"
            )


def _listed(numbers: tuple[int, ...]) -> str:
    return ",".join(str(number) for number in numbers)
