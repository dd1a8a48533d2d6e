"""Joining a loop of the user's own: the process's device, the modules that it was given, and its batches.

Modules and batches of each process are checked by all together, so that a wrong one ends all with one error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist

from placements import Kind
from runtime.codegen.script import Script, check_specs
from runtime.execution.device_context import DeviceContext
from runtime.execution.process import Process
from runtime.execution.run_options import RunOptions
from runtime.loops.batches import BatchData, BatchError
from runtime.models import GIVEN_MODEL, USER_MODEL, ModelOptions
from runtime.models.user.given import (
    GivenModules,
    GivenSource,
    Loss,
    LossWeight,
    Modules,
    is_list,
    own_modules,
    type_of,
)
from runtime.models.user.packing import Forms
from runtime.models.user.user_file import UserFile
from runtime.program.calls import ScriptError
from runtime.transport.agreement import PipelineError, agreed, succeeded
from runtime.transport.protocol import Transport

ReadShapes = tuple[tuple[tuple[int, ...], ...], ...]
"""The shapes of the data of a micro-batch, by process."""


def own_process(options: RunOptions) -> Process:
    """Return this process: of the script's process group, or as torchrun says."""
    if dist.is_initialized():
        return Process(dist.get_rank(), dist.get_world_size(), replace(options, backend=dist.get_backend()))
    try:
        return Process.of_torchrun(options)
    except ScriptError:
        raise ScriptError(
            "this is one of several processes; start all with: torchrun --nproc-per-node NUM_DEVICES SCRIPT"
        ) from None


class Given(NamedTuple):
    """A script's modules, and the options that need some; see `Pipeline`."""

    modules: Modules | str | Path | None
    loss: Loss | None
    loss_weight: LossWeight | None
    precision: str | None
    unequal: bool

    def source(self, script: Script, names: Sequence[str]) -> GivenSource:
        """Return the modules of the own blocks, from a file or as they were given."""
        placement, seed = script.placement, script.model.seed
        assert self.modules is not None
        if not isinstance(self.modules, (str, Path)):
            made = own_modules(self.modules, placement, names)
            return GivenSource(made, seed, self.loss, self.loss_weight)
        file = UserFile(ModelOptions(USER_MODEL, path=str(Path(self.modules).resolve()), seed=seed))
        made = own_modules(file.modules(names), placement, names)
        return GivenSource(made, seed, self.loss or file.loss, self.loss_weight or file.loss_weight)


def join(given: Given, script: Script, process: Process, transport: Transport) -> tuple[GivenModules, Script]:
    """Return the own blocks' modules, which know the parameters of all, and the script of their model.

    Raises:
        PipelineError: The modules of some process do not fit the placement.
    """
    placement, job = script.placement, script.model
    if given.unequal and script.specs is not None:
        raise ScriptError(
            f"unequal: the job, of the model {job.name!r}, has fixed shapes; generate it with "
            f"runtime.model={GIVEN_MODEL}"
        )
    names = [block.name for block in placement.on(process.device) if block.kind is Kind.F]
    source, types = agreed(
        transport, process.device, lambda: given.source(script, names), lambda made: type_of(made.given)
    )
    dtypes = sorted({dtype for dtype in types if dtype is not None})
    if len(dtypes) > 1:
        raise PipelineError(f"modules: are of several types ({', '.join(dtypes)}); convert them to one")
    dtype = dtypes[0] if dtypes and script.specs is None else job.dtype
    model = ModelOptions(GIVEN_MODEL, seed=job.seed, dtype=dtype, precision=given.precision)
    body, described = agreed(
        transport,
        process.device,
        lambda: GivenModules(model, placement, source, names, keeps_names=is_list(given.modules)),
        lambda body: body.described,
    )
    body.know(described)
    weighs, device = body.weight_of_loss is not None, transport.device
    body.reader = BatchData(placement, process.device, model, device, weighs, body.read_names, given.unequal)
    return body, replace(script, model_data=model.to_dict())


class Intake:
    """Reads batches for the blocks of this process, and finds the shapes that all blocks hand over.

    Attributes:
        data: The own blocks that read, and how.

    Args:
        context: The device and all that it runs with.
        body: The modules that were given; None for the job's own model, which reads its own text.
    """

    def __init__(self, context: DeviceContext, body: GivenModules | None) -> None:
        self._context, self._body, self._script = context, body, context.script
        self._known: dict[ReadShapes, Mapping[str, Forms]] = {}
        self._all = context.transport, context.process.device
        of_device = context.process.device, self._script.model, context.transport.device
        self.data = BatchData(self._script.placement, *of_device) if body is None else body.reader

    @property
    def has_shapes(self) -> bool:
        """Whether the shapes that all blocks hand over are known, in the next batch too."""
        return self._body is None or (self._body.has_shapes and not self.data.varies)

    def take(self, batch: Any, num_micro_batches: int | None) -> int | None:
        """Let the blocks read a batch; return its number of micro-batches, None where nothing is read.

        Raises:
            BatchError: It is wrong.
        """
        if self._body is None:
            if batch is not None:
                raise BatchError("batch: the job's own model reads its own text; leave the batch out")
            return self._script.num_micro_batches
        self.data.check(batch)
        if not self.data.reads:
            return None
        if batch is None:
            raise BatchError("batch: is None, but this process reads inputs or targets; give it one")
        return self.data.take(batch, num_micro_batches)

    def take_together(self, batch: Any, expected: int | None = None) -> int:
        """Let the blocks of all processes read a batch, and know the shapes that they hand over in it.

        Unknown shapes of a micro-batch are found by running each process's own blocks once, forward.

        Args:
            batch: See `take`.
            expected: Number of micro-batches that it must have; None for any.

        Returns:
            Its number of micro-batches.

        Raises:
            PipelineError: The batch of some process is wrong, or their numbers of micro-batches differ.
        """
        body, data = self._body, self.data
        if body is not None and not body.has_shapes:
            expected = self._script.num_micro_batches

        def shapes_read(number: int | None) -> list[tuple[tuple[int, ...], ...]] | None:
            return None if number is None else [data.shapes(n) for n in range(number)]

        reads = agreed(*self._all, lambda: self.take(batch, expected), shapes_read)[1]
        numbers: dict[int, int] = {len(read): device for device, read in enumerate(reads) if read is not None}
        if len(numbers) != 1:
            counts = " and ".join(f"{number} on device {device}" for number, device in numbers.items())
            raise PipelineError(f"batch: has {counts} micro-batches; give all that read the same batch")
        (number,) = numbers
        if body is not None and not self.has_shapes:
            self._know(body, list(zip(*(read or [()] * number for read in reads), strict=True)))
        return number

    def _know(self, body: GivenModules, read: Sequence[ReadShapes]) -> None:
        """Find the shapes of each micro-batch, or of the first where all are alike."""
        is_first = not body.has_shapes
        for n, shapes in enumerate(read if self.data.varies else read[:1]):
            if shapes not in self._known:
                self._known[shapes] = self._find_shapes(body, n)
        body.forms = dict(self._known[read[0]])
        if self.data.varies:
            self.data.know([self._known[shapes] for shapes in read])
        if is_first:
            index, spec_of = self._context.process.device, self._context.device.spec_of_model
            succeeded(*self._all, lambda: check_specs(self._script, index, spec_of))

    def _find_shapes(self, body: GivenModules, micro_batch: int) -> Mapping[str, Forms]:
        """Return the shapes of a micro-batch: each process runs its own blocks once, forward."""
        shapes: dict[str, Forms] = {}
        read = partial(self.data.read, iteration=0, micro_batch=micro_batch)
        num_blocks = sum(block.kind is Kind.F for block in self._script.placement.blocks)
        while len(shapes) < num_blocks:
            find = partial(body.output_forms, shapes, read, self._context.transport.device)
            for forms in agreed(*self._all, find, lambda forms: forms)[1]:
                shapes = shapes | forms
        return shapes
