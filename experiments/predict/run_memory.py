"""The memory of a stage by its tensors, at the moment at which it holds most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from experiments.predict.run_prediction import RunModel
from placements.models.costs import layer_memory
from placements.models.memory import STATE_KINDS, MemoryItem


class StageTensor(NamedTuple):
    """Tensors of one name on a GPU of a stage.

    Attributes:
        kind: See `placements.models.memory.MemoryKind`.
        name: What they are.
        gib: GiB of all of them together.
        held: Micro-batches of which they are held; 1 of states.
        rule: How they are counted.
    """

    kind: str
    name: str
    gib: float
    held: int
    rule: str


def stage_memory(model: RunModel, stage: int) -> Iterator[StageTensor]:
    """Yield the tensors of a stage by kind, largest first in each.

    What its chunks keep is counted for as many micro-batches as each holds when the stage holds most. Of what
    backwards hold for a while, the largest counts.

    Args:
        model: The run.
        stage: Its number.
    """
    plan, costs = model.plan, model.costs
    group, (held, is_backward) = plan.group(stage), model.at_peak(stage)
    sums: dict[tuple[str, str, int, str], float] = {}
    temporary: list[MemoryItem] = []
    for chunk, layers in enumerate(model.chunks):
        for layer, strategy in model.layers_of(layers) if chunk % model.run.pp == stage else ():
            items = layer_memory(
                layer, strategy, plan.micro_batch_size, plan.num_micro_batches, group, costs.options
            )
            temporary = max(temporary, [item for item in items if item.kind == "backward"], key=_num_bytes)
            for item in items:
                count = held.get(chunk, 0) if item.kind == "kept" else 1
                key, size = (item.kind, item.name, count, item.rule), count * item.num_bytes
                if item.kind == "buffer":
                    sums[key] = size
                elif item.kind != "backward":
                    sums[key] = sums.get(key, 0.0) + size
    for item in temporary if is_backward else ():
        sums[item.kind, item.name, 1, item.rule] = item.num_bytes
    order = (*STATE_KINDS, "kept", "backward", "buffer")
    for (kind, name, count, rule), size in sorted(
        sums.items(), key=lambda each: (order.index(each[0][0]), -each[1])
    ):
        if size:
            yield StageTensor(kind, name, size / 2**30, count, rule)


def _num_bytes(items: Iterable[MemoryItem]) -> float:
    return sum(item.num_bytes for item in items)
