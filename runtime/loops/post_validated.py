"""Iterations without a barrier between them: the next begins while the norm of the last is not known yet.

An iteration begins with forward blocks, those that need nothing of any backward. Each device runs these with
the parameters of its early step (`runtime.training.post_validation`), and only then waits for the norm. If
the step is taken back, all devices begin the iteration again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from graphlib import TopologicalSorter

from placements import Kind
from runtime.execution.device_context import DeviceContext
from runtime.interpreter.interpreter import interpret
from runtime.loops.iterations import Iterations
from runtime.options.run import not_post_validated
from runtime.program.calls import Message, ScriptError
from runtime.program.deadlock import Rendezvous
from runtime.program.instructions import Programs, Run
from runtime.training.post_validation import EarlyStep, Validated


def first_forwards(programs: Programs) -> tuple[int, ...]:
    """Return for each device how many of its first instructions need no backward block of any device.

    They are whole together: what one sends, another receives among its own, and the other way round; and all
    devices of a block run it. So they can be done again.

    >>> from placements.shapes import v_shape
    >>> from runtime.program.lower import lower
    >>> from schedsearch.baselines import one_f_one_b
    >>> programs = lower(one_f_one_b(v_shape(2), 4))
    >>> lengths = first_forwards(programs)
    >>> for of, length in zip(programs.instructions, lengths):
    ...     print("; ".join(map(str, of[:length])))
    run F0 #0; send F0 -> F1 #0 to 1; run F0 #1; send F0 -> F1 #1 to 1
    receive F0 -> F1 #0 from 0; run F1 #0; receive F0 -> F1 #1 from 0
    """
    by_name = programs.placement.by_name
    operations, waits = Rendezvous.of(programs)
    done: set[Run | Message] = set()
    for each in TopologicalSorter(waits).static_order():
        is_backward = isinstance(each, Run) and by_name[each.block].kind is not Kind.F
        if not is_backward and done.issuperset(waits[each]):
            done.add(each)
    return tuple(sum(each in done for each in own) for own in operations)


def check_post_validation(context: DeviceContext) -> None:
    """Ensure that a run's steps can be taken back.

    Raises:
        ScriptError: They cannot; the line names what does not go together with it.
    """
    name = not_post_validated(context.process.options, context.script.model)
    if context.script.placement.has_streams:
        name = "blocks of other streams than compute"
    elif context.profiler is not None or context.plans.is_used:
        name = "a profile" if context.profiler is not None else "the plans of a server"
    if name is not None:
        raise ScriptError(f"post_validation: is not for a run with {name}; leave one of the two out")


class PostValidatedIterations:
    """The iterations of a device whose steps are validated later; every device calls each method alike.

    Args:
        context: What the device runs with.
        iterations: Has the updates.

    Raises:
        ScriptError: The run's steps cannot be taken back.
    """

    def __init__(self, context: DeviceContext, iterations: Iterations) -> None:
        """Find what each iteration begins with; every device must call it."""
        check_post_validation(context)
        script, transport = context.script, context.transport
        self._context, self._device = context, context.device
        self._instructions = tuple(script.calls.instructions)
        self._clocks = [run.clock_mhz for run in script.calls.runs]
        all_instructions = tuple(map(tuple, transport.collect(self._instructions)))
        programs = Programs(script.placement, script.num_micro_batches, all_instructions, batch=script.batch)
        self._first = first_forwards(programs)[context.process.device]
        self._step = EarlyStep(iterations.update, context.model, script.placement, transport.collecting())

    def run(self, index: int, settle: Callable[[], Validated | None]) -> float:
        """Run an iteration, and settle the step of the one before on the way; return its milliseconds.

        Args:
            index: Number of the iteration.
            settle: Calls `settle`, and returns what it does; None where nothing is to be settled.
        """
        start_s = time.perf_counter()
        self._device.begin(index)
        if self._step.is_pending:
            buffers = self._context.model.body.kept_buffers()
            self._carry_out(0, self._first)
            validated = settle()
            if validated is not None and validated.again:
                self._device.discard()
                self._context.model.body.restore_buffers(buffers)
                self._device.begin(index)
                self._carry_out(0, self._first)
        else:
            self._carry_out(0, self._first)
        self._carry_out(self._first, len(self._instructions))
        self._device.finish()
        return (time.perf_counter() - start_s) * 1000

    def step(self, told: object) -> None:
        """Step early, and tell the others the own part of the norm and something besides."""
        self._step.begin(told)

    def settle(self, keep: Callable[[], object]) -> Validated:
        """Wait until the norm is known; see `EarlyStep.settle`."""
        return self._step.settle(keep)

    def _carry_out(self, first: int, last: int) -> None:
        before = sum(isinstance(each, Run) for each in self._instructions[:first])
        interpret(self._instructions[first:last], self._device, self._clocks[before:])
