"""The clocks of a plan in a training loop of one's own (Perseus, Table 2): ``controller.set_speed(type)``.

The loop says what it computes next; the controller knows the plan's clock for it. A plan is for one order of
the blocks, so a loop that runs them in another one is told at once. The module knows neither tensors nor
transfers. Scripts that `runtime.codegen.codegen` makes need none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from placements import Kind
from placements.forms.texts import read_json
from placements.hardware import ClockLatency
from runtime.clocks.clock import ClockBackend
from runtime.clocks.gpu_clock import open_gpu_clock
from runtime.clocks.stream_clock import GpuEvent, StreamClock
from runtime.clocks.torch_gpu import record_event
from runtime.program.calls import BlockCall, ScriptError
from schedsearch.schedule import Schedule, micro_batches_of

TYPES: Mapping[str, tuple[Kind, ...]] = {"forward": (Kind.F,), "backward": (Kind.B, Kind.I, Kind.W)}
"""Perseus's types, for which a block's name may stand as well."""

CPU = torch.device("cpu")


class SpeedController:
    """Asks for the planned clock of each computation of one device; a context that gives the clock back.

    Args:
        schedule: Blocks of an iteration in their order.
        clock_mhz: For each block one clock per micro-batch, as in ``plan.json``; see `read_clocks`.
        device: Device of the placement.
        torch_device: Where it computes. On a GPU clocks are asked for where its compute stream stands.
        latency: Duration of clock changes; None for the table of the GPU's name.
        clock: Takes the requests instead of the GPU's.
        record: Returns an event that was just recorded on the compute stream.

    Raises:
        ScriptError: The placement has no such device, or the plan lacks clocks.
    """

    def __init__(
        self,
        schedule: Schedule,
        clock_mhz: Mapping[str, Sequence[int]],
        device: int,
        torch_device: torch.device = CPU,
        *,
        latency: ClockLatency | None = None,
        clock: ClockBackend | None = None,
        record: Callable[[], GpuEvent] = lambda: record_event(sleeps=True),
    ) -> None:
        """Check the plan and open the clock."""
        if not 0 <= device < schedule.placement.num_devices:
            raise ScriptError(
                f"device: {device} is not in {schedule.placement.name}; its devices are 0 to "
                f"{schedule.placement.num_devices - 1}"
            )
        self._kind_of = {name: block.kind for name, block in schedule.placement.by_name.items()}
        self._device, self._record = device, record
        self._runs, self._position = _runs(schedule, clock_mhz, device), 0
        self._clock = clock or open_gpu_clock(self._runs, torch_device, latency)
        self.description = self._clock.description

    @property
    def requests(self) -> list[int]:
        """Return every clock asked for, in order; MHz."""
        return self._clock.requests

    def set_speed(self, type: str) -> int:
        """Ask for the clock of the next computation of the device, and return it in MHz.

        It is called right before that computation, when its inputs are there. After the last one of an
        iteration the first one is next.

        Args:
            type: Its block, or ``forward`` or ``backward``.

        Raises:
            ScriptError: The schedule has something else next.
            ClockError: An earlier clock could not be set.
        """
        if self._position == len(self._runs):
            self.begin_iteration()
        run = self._runs[self._position]
        if type != run.block and self._kind_of[run.block] not in TYPES.get(type, ()):
            raise ScriptError(
                f"device {self._device}: set_speed({type!r}) comes where the schedule has {run.block} of "
                f"micro-batch {run.micro_batch}, {self._position + 1} of {len(self._runs)}; run the blocks "
                "in its order, or make a plan for yours"
            )
        assert run.clock_mhz is not None
        if isinstance(self._clock, StreamClock):
            # Nobody says when the computation before has ended; it was before this one at the latest.
            event = self._record()
            self._clock.after(event)
            self._clock.before(event)
        else:
            self._clock.set(run.clock_mhz)
        self._position += 1
        return run.clock_mhz

    def begin_iteration(self) -> None:
        """Expect the first computation next; needed only after an iteration that ended early."""
        self._position = 0
        if isinstance(self._clock, StreamClock):
            self._clock.begin_iteration()

    def close(self) -> None:
        """Give the clock back; nothing can be set afterwards."""
        self._clock.reset()

    def __enter__(self) -> SpeedController:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Give the clock back."""
        self.close()


def read_clocks(schedule: Schedule, plan: str | Path) -> Mapping[str, Sequence[int]]:
    """Return the clocks of ``plan.json``, ``switched.json`` ... for each block and micro-batch of a schedule.

    Raises:
        ValueError: The file cannot be read, or has clocks of other blocks.
    """
    data = read_json(plan, "a plan.json", ScriptError)
    clocks = data.get("plan", data) if isinstance(data, dict) else None
    clocks = clocks.get("clock_mhz") if isinstance(clocks, dict) else None
    if not isinstance(clocks, dict):
        raise ScriptError(f"{plan}: clock_mhz: is not a mapping of clocks by block; give a plan.json")
    if others := clocks.keys() - schedule.placement.by_name:
        raise ScriptError(
            f"{plan}: clock_mhz: has clocks of {min(others)}, which {schedule.placement.name} has not; "
            "give a plan of this schedule"
        )
    return clocks


def _runs(schedule: Schedule, clock_mhz: Mapping[str, Sequence[int]], device: int) -> list[BlockCall]:
    """Return the blocks of a device in an iteration, with their clocks; a missing one is an error."""
    runs = []
    for block, micro_batch in schedule.order(device):
        clocks = clock_mhz.get(block, ())
        wanted = micro_batches_of(schedule.placement, block, schedule.num_micro_batches)
        if len(clocks) != len(wanted) or any(type(clock) is not int or clock < 1 for clock in clocks):
            raise ScriptError(
                f"clock_mhz: {block} has {list(clocks)} for {len(wanted)} micro-batches; give a plan of this "
                "schedule"
            )
        runs.append(BlockCall(block, micro_batch, clocks[micro_batch - wanted.start]))
    return runs
