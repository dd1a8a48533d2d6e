"""A run once more in one process: the devices' own orders, each device in its turn, without messages.

It must always agree with the run bit for bit, whatever the order of sums: so messages changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor

from placements import Placement
from runtime.models import Blocks, Model, ParameterShard, ReadVersions, read_versions
from runtime.models.blocks import Instance
from runtime.program.data_parallel import holders
from runtime.training.update import Update
from runtime.transport.in_memory import MemoryTransport, Network
from runtime.transport.turns import DeadlockError
from runtime.verify.reference import ReferenceCase, TrainingStep, begin_weights, sum_over_sinks


class ReplayError(ValueError):
    """The devices' orders wait for each other in a cycle, so no single process can replay them."""


def replay(
    case: ReferenceCase,
    orders: Sequence[Sequence[Instance]],
    changed: Mapping[int, Sequence[Sequence[Instance]]] | None = None,
) -> Iterator[TrainingStep]:
    """Run the devices' orders in one process, in turns; tensors are handed over without messages.

    Args:
        case: What was run.
        orders: For each device the (block, micro-batch) pairs that it ran, in order.
        changed: Orders from these iterations on.

    Yields:
        Each iteration in turn, valid until the next is asked for.

    Raises:
        ReplayError: The orders wait for each other.
    """
    network = Network(case.placement.num_devices, device=case.torch_device)
    made = _Made({}, set(), case.placement, set())
    versions = read_versions(case.options, case.placement, case.num_micro_batches, orders)
    devices = [
        _Replayed(case, network, made, versions.on(case.placement, order), device)
        for device, order in enumerate(orders)
    ]
    for iteration in range(case.iterations):
        made.done.clear()
        orders = (changed or {}).get(iteration, orders)
        made.order.clear()
        made.order.update((run, d) for d, order in enumerate(orders) for run in order)
        runs = [partial(each.run, iteration, order) for each, order in zip(devices, orders, strict=True)]
        try:
            steps = network.run(runs)
        except DeadlockError:
            raise ReplayError(f"the devices wait for each other at {[each.at for each in devices]}") from None
        losses = {instance: loss for device in devices for instance, loss in device.losses().items()}
        gradients = {shard: gradient for step in steps for shard, gradient in step.items()}
        parameters = {shard: value for each in devices for shard, value in each.model.state().items()}
        yield TrainingStep(sum_over_sinks(case, losses), gradients, parameters)


class _Made(NamedTuple):
    """What the devices of a replay share.

    Attributes:
        tensors: Those handed over: (producer, consumer, micro-batch, device of the consumer) -> tensor.
        done: The (block, micro-batch, device) that ran in this iteration.
        placement: What runs where.
        order: What is in the order of each device.
    """

    tensors: dict[tuple[str, str, int, int], Tensor]
    done: set[tuple[str, int, int]]
    placement: Placement
    order: set[tuple[Instance, int]]

    def devices(self, name: str, micro_batch: int) -> tuple[int, ...]:
        """Return the devices that run a block of a micro-batch: of copies that take turns one."""
        block = self.placement.by_name[name]
        if not block.in_turns:
            return block.devices
        return tuple(each for each in block.devices if ((name, micro_batch), each) in self.order)


class _Replayed:
    """One device of a replay.

    Attributes:
        model: Its shards of its blocks.
        at: The (block, micro-batch) where it is.
    """

    def __init__(
        self, case: ReferenceCase, network: Network, made: _Made, versions: ReadVersions, index: int
    ) -> None:
        """Build its parameters."""
        self._placement, self._index, self._network, self._made = case.placement, index, network, made
        transport = MemoryTransport.of(network, case.placement, (), index)
        self.model = Model(
            case.options,
            case.placement,
            transport.shards,
            case.torch_device,
            groups=transport.groups,
        )
        begin_weights(case, self.model)
        self._left_out = case.left_out
        self._blocks = Blocks(case.placement, self.model, case.num_micro_batches, versions, case.left_out)
        self._update = Update(self.model, self._blocks, case.placement, transport)
        self.at: Instance | None = None

    def run(self, iteration: int, order: Sequence[Instance]) -> Mapping[ParameterShard, Tensor]:
        """Run an iteration; return the gradients of before the step."""
        self._blocks.follow(order)
        self._blocks.begin(iteration)
        for self.at in order:
            self._run(*self.at)
        self._update.prepare()
        gradients = self.model.gradients()
        self._update.step()
        return gradients

    def losses(self) -> dict[Instance, float]:
        """Return the losses of the iteration."""
        return {instance: float(loss) for instance, loss in self._blocks.losses.items()}

    def _run(self, name: str, micro_batch: int) -> None:
        """Run a block as soon as its other devices are at it too, and what it is after is done everywhere."""
        by_name, made = self._placement.by_name, self._made
        block = by_name[name]
        team = made.devices(name, micro_batch)
        others = self._network.exchange(team, self._index, (name, micro_batch))
        if len(set(others)) > 1:
            raise DeadlockError
        before = [other for other in block.after if (other, micro_batch) not in self._left_out]
        needed = {(other, micro_batch, d) for other in before for d in made.devices(other, micro_batch)}
        self._network.turns.wait_until(self._index, lambda: needed <= made.done)
        inputs = self._blocks.inputs_of(name, micro_batch)
        taken = [(producer, name, micro_batch, self._index) for producer in inputs]
        arrived = [made.tensors.pop(key) for key in taken]
        for consumer, tensor in self._blocks.run(name, micro_batch, arrived).items():
            for target in made.devices(consumer, micro_batch):
                sources = [each for each in holders(block, by_name[consumer], target) if each in team]
                if self._index == (target if target in sources else sources[0]):
                    made.tensors[name, consumer, micro_batch, target] = tensor
        made.done.add((name, micro_batch, self._index))
