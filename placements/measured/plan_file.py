"""A plan that was run, as Sailor's files have it: stages of layers, the replicas of each, and the batch.

It does not know what layers cost or which links there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from placements.measured.link_fit import GpuGroup
from placements.plain_data import Field, json_file

_MOST = 1_000_000


class PlanFileError(ValueError):
    """A plan's file is wrong; the message names the field, the value and the remedy in one line."""


@dataclass(frozen=True)
class ReplicatedStage:
    """One stage of a pipeline.

    Attributes:
        layers: Their numbers; 0 is the embedding.
        replicas: The GPUs of each data-parallel copy.
    """

    layers: tuple[int, ...]
    replicas: tuple[GpuGroup, ...]


@dataclass(frozen=True)
class ReplicatedPlan:
    """A pipeline whose stages have replicas of their own, on GPUs that may differ.

    Attributes:
        stages: First one first.
        micro_batch_size: Sequences of a micro-batch of one replica.
        global_batch_size: Sequences of an iteration, over all replicas.
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
        """Micro-batches that go through the pipeline side by side: one for each replica where most are."""
        return max(len(stage.replicas) for stage in self.stages)

    @property
    def num_micro_batches(self) -> int:
        """How many follow one another on each replica of the stage that has most."""
        return math.ceil(self.global_batch_size / (self.micro_batch_size * self.width))

    def share_of(self, stage: ReplicatedStage) -> int:
        """Return how many micro-batches a replica computes while one of the widest stage computes one."""
        return math.ceil(self.width / len(stage.replicas))


def read_replicated_plan(path: str | Path) -> ReplicatedPlan:
    """Read a plan from a JSON file; fields that say what was measured are not read.

    Raises:
        PlanFileError: The file cannot be read or is wrong; the message begins with its path.
    """
    with json_file(path, "a plan of stages and replicas", PlanFileError, "plan") as fields:
        pipelines = fields["pipeline_list"].items("a list of one pipeline")
        if len(pipelines) != 1:
            raise fields["pipeline_list"].wrong("a list of one pipeline", "give one in each file")
        return ReplicatedPlan(_stages(pipelines[0]), _count(fields["mbs"]), _count(fields["gbs"]))


def _stages(field: Field) -> tuple[ReplicatedStage, ...]:
    num_stages = _count(field["num_stages"])
    columns = [field[name] for name in ("layers_per_stage", "tmp_per_stage", "dp")]
    for column in columns:
        if len(column.items("a list with an entry for each stage")) != num_stages:
            raise column.wrong(f"an entry for each of the {num_stages} stages", "give as many")
    return tuple(_stage(*row) for row in zip(*(column.items() for column in columns), strict=True))


def _stage(layers: Field, replicas: Field, count: Field) -> ReplicatedStage:
    numbers = tuple(
        each.whole("the number of a layer", least=0, most=_MOST) for each in layers.items("a list of layers")
    )
    if not numbers:
        raise layers.wrong("a list of layers", "give each stage at least one")
    groups = tuple(_group(each) for each in replicas.items("a list of replicas"))
    if len(groups) != _count(count):
        raise count.wrong(f"the number of replicas in {replicas.where}, {len(groups)}", "make them agree")
    return ReplicatedStage(numbers, groups)


def _group(field: Field) -> GpuGroup:
    wanted = "a replica: [[[gpu, GPUs of a node, zone], ...], tensor parallelism]"
    parts = field.items(wanted)
    if len(parts) != 2:
        raise field.wrong(wanted)
    nodes, size = [each.items(wanted) for each in parts[0].items(wanted)], _count(parts[1])
    if not nodes or any(len(node) != 3 for node in nodes):
        raise field.wrong(wanted)
    kinds = {(node[0].text("the name of a GPU"), node[2].text("the name of a zone")) for node in nodes}
    if len(kinds) > 1:
        raise parts[0].wrong("nodes of one type of GPU and one zone", "make others a replica of their own")
    if size > sum(_count(node[1]) for node in nodes):
        raise parts[1].wrong("at most the GPUs of its nodes", "name more nodes, or share layers among fewer")
    gpu, zone = kinds.pop()
    return GpuGroup(gpu, zone, size)


def _count(field: Field) -> int:
    return field.whole(f"a whole number from 1 to {_MOST}", least=1, most=_MOST)
