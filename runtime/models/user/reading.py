"""Data of the blocks, picked from the inputs and targets of a micro-batch that a file or a loop gives.

Inputs are a tensor, several, or a mapping of block to these where blocks read different ones; or they are a
mapping by the names of the module's arguments, which `runtime.models.user.cut` knows. So are targets. A name
that nobody reads is a mistake. It does not know where the tensors come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from placements import Placement
from runtime.models.core.options import ModelOptions
from runtime.models.user.packing import Forms
from runtime.models.user.seeds import digest
from runtime.models.user.sources import ModuleSource
from runtime.program.tensor_flow import computes_loss, forward_graphs, forward_inputs
from runtime.transport.shards import share_of

INPUTS, TARGETS = "inputs", "targets"

ReadNames = Mapping[str, Mapping[str, tuple[str, ...]]]
"""For blocks that are known, the names of their inputs and targets in order; empty where they have none."""


class Sample(NamedTuple):
    """Data of a block of a micro-batch.

    Attributes:
        inputs: For a block that reads some; else empty.
        targets: For a block that computes a loss; else empty.
        seed: Seed of the block's random numbers; None for one that draws none.
        num_shares: How many of these would be all samples.
        forms: Forms of each block's outputs in the micro-batch; None where they are the same for all.
    """

    inputs: tuple[Tensor, ...]
    targets: tuple[Tensor, ...]
    seed: int | None
    num_shares: int = 1
    forms: Mapping[str, Forms] | None = None

    def changed(self, change: Callable[[Tensor], Tensor]) -> Sample:
        """Return it with each tensor changed."""
        inputs, targets = (tuple(map(change, values)) for values in (self.inputs, self.targets))
        return self._replace(inputs=inputs, targets=targets)

    def share(self, index: int, count: int) -> Sample:
        """Return one of several equal shares of the samples, which are dimension 0 of every tensor."""
        return self.changed(lambda value: share_of(value, index, count))._replace(num_shares=count)


class ModelData(Protocol):
    """Data of the blocks of a process."""

    varies: bool
    """Whether blocks may hand over other shapes in each micro-batch; samples have the forms."""

    def read(self, block: str, iteration: int, micro_batch: int) -> Sample:
        """Return a forward block's data of a micro-batch; the same whenever it is asked for."""


class Reading:
    """Blocks that read, and their parts of given inputs and targets, of one type of floats on a device.

    Attributes:
        num_graphs: Number of separate graphs of the forward blocks.
        graph_of: Each forward block's graph, by number.
        blocks: The blocks that read inputs, and those that read targets. The former have no block before
            them, or have names of inputs.

    Args:
        error: Makes an error of a reason.
    """

    def __init__(
        self,
        placement: Placement,
        names: ReadNames,
        options: ModelOptions,
        device: torch.device | str,
        error: Callable[[str], ValueError],
    ) -> None:
        graphs = forward_graphs(placement)
        self.num_graphs = len(graphs)
        self.graph_of = {block: i for i, graph in enumerate(graphs) for block in graph}
        firsts = [name for name in self.graph_of if not forward_inputs(placement, name)]
        self.blocks = {
            INPUTS: tuple(n for n in self.graph_of if n in firsts or names.get(n, {}).get(INPUTS)),
            TARGETS: tuple(n for n in self.graph_of if computes_loss(placement, n)),
        }
        self._names, self._error = names, error
        self._dtype: torch.dtype = getattr(torch, options.dtype)
        self._device = torch.device(device)

    def check(self, values: Any, what: str) -> None:
        """Ensure that some block reads each name of inputs, or of targets.

        Raises:
            ValueError: No block does.
        """
        if not isinstance(values, Mapping):
            return
        readers = self.blocks[what]
        known = {*readers}
        if not known.union(self.graph_of).intersection(values):
            if any(block not in self._names for block in self.graph_of):
                return  # of another process, which checks it
            known = {name for block in readers for name in self._names[block][what]} or known
        if unread := [str(name) for name in values if name not in known]:
            raise self._error(
                f"has {what} for {', '.join(unread)}, which no block reads; give those of "
                f"{', '.join(sorted(known))} alone, and let blocks hand on the tensors that later blocks need"
            )

    def tensors(self, part: Any, block: str, what: str) -> tuple[Tensor, ...]:
        """Return a block's part of inputs, or of targets.

        Raises:
            ValueError: There is nothing for it, something that nobody reads, or no tensors.
        """
        self.check(part, what)
        is_own = isinstance(part, Mapping) and block in part
        if is_own:
            part = part[block]
        if isinstance(part, Mapping):
            names = self._names.get(block, {}).get(what) or (block,)
            given = ", ".join(map(str, part))
            if missing := [name for name in names if name not in part]:
                raise self._error(f"has {what} for {given}, none for {', '.join(missing)}; add them")
            if is_own and len(part) > len(names):
                raise self._error(f"has {what} of {block} for {given}; give {', '.join(names)} alone")
            part = tuple(part[name] for name in names)
        for value in several(part):
            if not isinstance(value, Tensor):
                raise self._error(f"has a {type(value).__name__} among the {what} of {block}; give tensors")
        values = (value.to(self._dtype) if value.is_floating_point() else value for value in several(part))
        return tuple(put(value, self._device) for value in values)


class SourceData:
    """Data of the blocks, of a source that makes inputs and targets for each separate graph of blocks.

    Raises:
        ModelError: The source has nothing to read.
    """

    varies = False

    def __init__(
        self, source: ModuleSource, reading: Reading, num_micro_batches: int, device: torch.device | str
    ) -> None:
        self._seed, self._reading = source.seed, reading
        self._batch = source.batches(num_micro_batches * reading.num_graphs, device)

    def read(self, block: str, iteration: int, micro_batch: int) -> Sample:
        """Return a block's data of a micro-batch.

        Raises:
            ModelError: The source's data is not for this block, or holds something that nobody reads.
        """
        reading = self._reading
        seed = None if self._seed is None else digest(self._seed, block, iteration, micro_batch)
        whats = [what for what, readers in reading.blocks.items() if block in readers]
        if not whats:
            return Sample((), (), seed)
        number = micro_batch * reading.num_graphs + reading.graph_of[block]
        data = dict(zip(reading.blocks, self._batch(iteration, number), strict=True))
        tensors = {what: reading.tensors(data[what], block, what) for what in whats}
        return Sample(tensors.get(INPUTS, ()), tensors.get(TARGETS, ()), seed)


def put(value: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, without waiting for earlier work of a GPU."""
    if device.type == "cuda" and value.device.type == "cpu":
        value = value.pin_memory()
    return value.to(device, non_blocking=True)


def several(values: Any) -> tuple[Any, ...]:
    """Return one or several values as a tuple."""
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)
