"""A plan in the form of Sailor's files: stages of layers, the replicas of each, and the batch.

The module does not know costs of layers, nor links.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

from placements.forms.meaning import Meaning
from placements.forms.reading import json_file
from placements.measured.link_fit import GpuGroup


class PlanFileError(ValueError):
    """A plan's file is wrong; the message names the field, the value and the remedy in one line."""


class ReplicatedStage(NamedTuple):
    """One stage of a pipeline: numbers of its layers, 0 is the embedding, and GPUs of each replica."""

    layers: tuple[int, ...]
    replicas: tuple[GpuGroup, ...]


@dataclass(frozen=True)
class ReplicatedPlan:
    """A pipeline whose stages have replicas of their own, on GPUs that may differ.

    A micro-batch has its sequences on one replica, the global batch over all replicas.
    """

    stages: tuple[ReplicatedStage, ...]
    micro_batch_size: int
    global_batch_size: int

    @property
    def num_gpus(self) -> int:
        """GPUs of all stages and replicas."""
        return sum(group.size for stage in self.stages for group in stage.replicas)

    @property
    def width(self) -> int:
        """Replicas of the widest stage: micro-batches that go through the pipeline side by side."""
        return max(len(stage.replicas) for stage in self.stages)

    @property
    def num_micro_batches(self) -> int:
        """Number of micro-batches one after another on each replica of the widest stage."""
        return math.ceil(self.global_batch_size / (self.micro_batch_size * self.width))

    def repeats_of(self, stage: ReplicatedStage) -> int:
        """Return the number of micro-batches on a replica for each one on a replica of the widest stage."""
        return math.ceil(self.width / len(stage.replicas))


class ReplicaEntry(NamedTuple):
    """A replica of a stage in a plan's file: GPU type, number of GPUs and zone of each node."""

    nodes: tuple[tuple[str, Annotated[int, Meaning("GPUs of the node", min=1)], str], ...]
    tensor_parallel: Annotated[int, Meaning("GPUs that share its layers", min=1)]


@dataclass(frozen=True)
class PipelineEntry:
    """The pipeline of a plan's file."""

    num_stages: Annotated[int, Meaning("number of stages", min=1)]
    layers_per_stage: Annotated[tuple[tuple[int, ...], ...], Meaning("layers of each stage", min=0)]
    tmp_per_stage: Annotated[
        tuple[tuple[ReplicaEntry, ...], ...],
        Meaning("replicas of each stage: `[[[gpu, GPUs of the node, zone], ...], tensor parallelism]`"),
    ]
    dp: Annotated[tuple[int, ...], Meaning("number of replicas of each stage", min=1)]


@dataclass(frozen=True)
class PlanEntry:
    """The fields of a plan's file, measured results aside."""

    pipeline_list: Annotated[tuple[PipelineEntry, ...], Meaning("one pipeline, with the fields below")]
    mbs: Annotated[int, Meaning("sequences of a micro-batch of one replica", min=1)]
    gbs: Annotated[int, Meaning("sequences of an iteration, over all replicas", min=1)]


def read_replicated_plan(path: str | Path) -> ReplicatedPlan:
    """Read a plan from a JSON file; see `PlanEntry`.

    Raises:
        PlanFileError: The file cannot be read or is wrong; the message begins with its path.
    """
    with json_file(path, "a plan of stages and replicas", PlanFileError, "plan") as fields:
        plan = replace(fields, is_open=True).record(PlanEntry)
        if len(plan.pipeline_list) != 1:
            raise fields["pipeline_list"].wrong("a list of one pipeline", "give one in each file")
        (pipeline,), stages = plan.pipeline_list, []
        columns = pipeline.layers_per_stage, pipeline.tmp_per_stage, pipeline.dp
        if {len(column) for column in columns} != {pipeline.num_stages}:
            fault = "is not the number of entries of layers_per_stage, tmp_per_stage and dp"
            raise PlanFileError(f"num_stages: {pipeline.num_stages} {fault}; give one for each stage")
        for i, (layers, replicas, count) in enumerate(zip(*columns, strict=True)):
            if not layers:
                raise PlanFileError(f"layers_per_stage[{i}]: is empty; give each stage at least one layer")
            if len(replicas) != count:
                fault = f"{count} is not the number of replicas in tmp_per_stage[{i}], {len(replicas)}"
                raise PlanFileError(f"dp[{i}]: {fault}; make them agree")
            groups = tuple(_group(replica, f"tmp_per_stage[{i}][{j}]") for j, replica in enumerate(replicas))
            stages.append(ReplicatedStage(layers, groups))
        return ReplicatedPlan(tuple(stages), plan.mbs, plan.gbs)


def _group(replica: ReplicaEntry, where: str) -> GpuGroup:
    kinds = {(gpu, zone) for gpu, _, zone in replica.nodes}
    if len(kinds) != 1:
        fault = f"{sorted(kinds)} are not nodes of one type of GPU and one zone"
        raise PlanFileError(f"{where}: {fault}; make others a replica of their own")
    if replica.tensor_parallel > sum(count for _, count, _ in replica.nodes):
        fault = f"{replica.tensor_parallel} is not at most the GPUs of its nodes"
        raise PlanFileError(f"{where}: {fault}; name more nodes, or share layers among fewer")
    return GpuGroup(*kinds.pop(), replica.tensor_parallel)
