"""A run once more in one process: the devices' own orders, each device in its turn, without messages.

It must always agree with the run bit for bit, whatever the order of sums: so messages changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from runtime.interpreter.interpreter import interpret
from runtime.models import Blocks, Model, ParameterShard, ReadVersions, read_versions
from runtime.program.data_parallel import holders
from runtime.program.instructions import Run
from runtime.training.update import Update
from runtime.transport.in_memory import DeadlockError, MemoryTransport, Network
from runtime.verify.reference import Orders, ReferenceCase, TrainingStep
from schedsearch.schedule import Instance


class ReplayError(ValueError):
    """The devices' orders wait for each other in a cycle, so no single process can replay them."""


def replay(case: ReferenceCase, orders: Mapping[int, Orders]) -> Iterator[TrainingStep]:
    """Run the devices' orders in one process, in turns; tensors are handed over without messages.

    Args:
        case: What was run.
        orders: Orders of the devices from some iterations on; the first also before.

    Yields:
        Each iteration in turn, valid until the next is asked for.

    Raises:
        ReplayError: The orders wait for each other.
    """
    shared, now = _Shared(case), orders[min(orders)]
    versions = read_versions(case.options, case.placement, case.num_micro_batches, now)
    devices = [
        _ReplayedDevice(shared, versions.on(case.placement, order), device)
        for device, order in enumerate(now)
    ]
    for iteration in range(case.iterations):
        now = orders.get(iteration, now)
        shared.done.clear()
        shared.order = {(run, device) for device, order in enumerate(now) for run in order}
        try:
            parts = [partial(d.iterate, iteration, order) for d, order in zip(devices, now, strict=True)]
            steps = shared.network.run(parts)
        except DeadlockError:
            raise ReplayError(f"the devices wait for each other at {[d.at for d in devices]}") from None
        losses = {at: float(loss) for d in devices for at, loss in d.blocks.losses.items()}
        gradients = {shard: gradient for step in steps for shard, gradient in step.items()}
        parameters = {shard: value for d in devices for shard, value in d.model.state().items()}
        yield TrainingStep(case.sum_over_sinks(losses), gradients, parameters)


class _Shared:
    """Data that the devices of a replay share.

    Attributes:
        tensors: Those handed over: (producer, consumer, micro-batch, device of the consumer) -> tensor.
        done: The (block, micro-batch, device) that ran in this iteration.
        order: The ((block, micro-batch), device) of this iteration.
    """

    def __init__(self, case: ReferenceCase) -> None:
        self.case, self.by_name = case, case.placement.by_name
        self.network = Network(case.placement.num_devices, device=case.torch_device)
        self.tensors: dict[tuple[str, str, int, int], Tensor] = {}
        self.done: set[tuple[str, int, int]] = set()
        self.order: set[tuple[Instance, int]] = set()

    def team(self, name: str, micro_batch: int) -> tuple[int, ...]:
        """Return the devices that run a block of a micro-batch: of copies that take turns one."""
        block = self.by_name[name]
        if not block.in_turns:
            return block.devices
        return tuple(device for device in block.devices if ((name, micro_batch), device) in self.order)


class _ReplayedDevice:
    """A backend of the interpreter that runs blocks alone, as soon as they may.

    Attributes:
        model: Its shards of its blocks.
        blocks: Its blocks.
        at: The (block, micro-batch) where it is.
    """

    def __init__(self, shared: _Shared, versions: ReadVersions, index: int) -> None:
        case, self._shared, self._index = shared.case, shared, index
        transport = MemoryTransport.of(shared.network, case.placement, (), index)
        self.model = case.begin_weights(
            Model(case.options, case.placement, transport.shards, case.torch_device, groups=transport.groups)
        )
        self.blocks = Blocks(case.placement, self.model, case.num_micro_batches, versions, case.left_out)
        self._update = Update(self.model, self.blocks, case.placement, transport)
        self.at: Instance | None = None

    def iterate(self, iteration: int, order: Sequence[Instance]) -> Mapping[ParameterShard, Tensor]:
        """Run an iteration; return the gradients of before the step."""
        self.blocks.follow(order)
        self.blocks.begin(iteration)
        interpret((Run(*instance) for instance in order), self)
        self._update.prepare()
        gradients = self.model.gradients()
        self._update.step()
        return gradients

    def run(self, block: str, micro_batch: int, **how: Any) -> None:
        """Run a block as soon as its other devices reach it, and its predecessors are done."""
        self.at = block, micro_batch
        shared, index, this = self._shared, self._index, self._shared.by_name[block]
        team = shared.team(block, micro_batch)
        if len(set(shared.network.exchange(team, index, self.at))) > 1:
            raise DeadlockError
        before = [other for other in this.after if (other, micro_batch) not in shared.case.left_out]
        needed = {(other, micro_batch, d) for other in before for d in shared.team(other, micro_batch)}
        shared.network.turns.wait_until(index, lambda: needed <= shared.done)
        inputs = self.blocks.producers_of(block, micro_batch)
        arrived = [shared.tensors.pop((producer, block, micro_batch, index)) for producer in inputs]
        for consumer, tensor in self.blocks.run(block, micro_batch, arrived).items():
            for target in shared.team(consumer, micro_batch):
                sources = [d for d in holders(this, shared.by_name[consumer], target) if d in team]
                if index == (target if target in sources else sources[0]):
                    shared.tensors[block, consumer, micro_batch, target] = tensor
        shared.done.add((block, micro_batch, index))

    def send(self, *transfer: Any, **where: Any) -> None:
        """Do nothing: tensors are handed over where they are made."""

    receive = send
