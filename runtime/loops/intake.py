"""What a process of the user's own loop takes in: its batches, and the shapes of what blocks hand over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from placements import Kind
from runtime.codegen.script import check_specs
from runtime.execution.device_context import DeviceContext
from runtime.loops.batches import BatchError
from runtime.loops.joining import batch_data
from runtime.models.user.given import GivenModules
from runtime.models.user.packing import Forms
from runtime.models.user.shapes import KnownForms, ReadShapes
from runtime.transport.agreement import PipelineError, agreed, succeeded
from runtime.transport.protocol import Transport


class Intake:
    """Reads batches for the blocks of this process.

    Attributes:
        data: Which of the blocks read, and how.

    Args:
        context: What the device runs with.
        body: The modules that were given; None for the job's own model, which reads its own text.
    """

    def __init__(self, context: DeviceContext, body: GivenModules | None) -> None:
        """Read nothing yet."""
        self._context, self._body, self._script = context, body, context.script
        self._known = KnownForms()
        device = context.transport.device
        if body is None:
            self.data = batch_data(self._script, context.process, context.transport)
        else:
            self.data = body.data(self._script.num_micro_batches, device)

    @property
    def has_shapes(self) -> bool:
        """Whether it is known what all blocks hand over, in the next batch too."""
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
        """Let the blocks of all processes read a batch, and know what they hand over in it.

        What is not known of a micro-batch is found by running each process's own blocks once, forward.

        Args:
            batch: See `take`.
            expected: Number of micro-batches that it must have, if it must.

        Returns:
            Its number of micro-batches.

        Raises:
            PipelineError: The batch of some process is wrong, or their numbers of micro-batches differ.
        """
        if self._body is not None and not self._body.has_shapes:
            expected = self._script.num_micro_batches
        told = agreed(*self._all, lambda: self.take(batch, expected), self._shapes)[1]
        numbers: dict[int, int] = {len(each): device for device, each in enumerate(told) if each is not None}
        if len(numbers) != 1:
            counts = " and ".join(f"{number} on device {device}" for number, device in numbers.items())
            raise PipelineError(f"batch: has {counts} micro-batches; give all that read the same batch")
        (number,) = numbers
        if self._body is not None and not self.has_shapes:
            self._know(self._body, list(zip(*(each or [()] * number for each in told), strict=True)))
        return number

    def _shapes(self, number: int | None) -> list[tuple[tuple[int, ...], ...]] | None:
        """Return the shapes of what this process reads of each micro-batch; None where it reads nothing."""
        return None if number is None else [self.data.shapes(n) for n in range(number)]

    def _know(self, body: GivenModules, read: Sequence[ReadShapes]) -> None:
        """Let the blocks know what all hand over in each micro-batch, or in all where these are alike."""
        is_first = not body.has_shapes
        for n, shapes in enumerate(read if self.data.varies else read[:1]):
            if self._known.of(shapes) is None:
                self._known.add(shapes, self._found(body, n))
        forms = [found for shapes in read if (found := self._known.of(shapes)) is not None]
        body.set_shapes(forms[0])
        if self.data.varies:
            self.data.know(forms)
        if is_first:
            index, spec_of = self._context.process.device, self._context.device.spec_of_model
            succeeded(*self._all, lambda: check_specs(self._script, index, spec_of))

    def _found(self, body: GivenModules, micro_batch: int) -> Mapping[str, Forms]:
        """Return what all blocks hand over in a micro-batch: each process runs its own once, forward."""
        shapes: dict[str, Forms] = {}
        read = partial(self.data.read, iteration=0, micro_batch=micro_batch)
        num_blocks = sum(block.kind is Kind.F for block in self._script.placement.blocks)
        while len(shapes) < num_blocks:
            find = partial(body.shapes_of, shapes, read, self._context.transport.device)
            for found in agreed(*self._all, find, lambda found: found)[1]:
                shapes = shapes | found
        return shapes

    @property
    def _all(self) -> tuple[Transport, int]:
        return self._context.transport, self._context.process.device
