"""The clocks of a plan in a training loop of one's own (Perseus, Table 2): ``controller.set_speed(type)``.

The loop says what it computes next; the controller knows the plan's clock for it. A plan is for one order of
the blocks, so a loop that runs them in another one is told at once. The module knows neither tensors nor
transfers. Scripts that `runtime.codegen.codegen` makes need none of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from placements import Kind
from placements.forms.texts import read_json
from placements.hardware import ClockLatency
from runtime.clocks.clock import ClockBackend
from runtime.clocks.gpu_clock import open_gpu_clock
from runtime.clocks.stream_clock import GpuEvent, StreamClock
from runtime.clocks.torch_gpu import record_event
from runtime.plans.plan_client import DeployedPlan, PlanSource
from runtime.program.calls import BlockCall, ScriptError
from schedsearch.schedule import Schedule, micro_batches_of
from schedsearch.schedule_file import read_schedule

TYPES: Mapping[str, tuple[Kind, ...]] = {"forward": (Kind.F,), "backward": (Kind.B, Kind.I, Kind.W)}
"""Perseus's types, for which a block's name may stand as well."""

CPU = torch.device("cpu")

_LOG = logging.getLogger(__name__)


def _record_event() -> GpuEvent:
    return record_event(sleeps=True)


class SpeedController:
    """Asks for the planned clock of each computation of one device.

    Attributes:
        description: One line: what becomes of the requests.
        requests: Every clock asked for, in order; MHz.

    Args:
        schedule: What an iteration runs.
        clock_mhz: For each block one clock per micro-batch, as in ``plan.json``.
        device: Device of the placement.
        torch_device: Where it computes. On a GPU clocks are asked for where its compute stream stands.
        latency: What changes of clock take; None for the table of the GPU's name.
        plans: Asked for newer clocks between iterations. Each device asks by itself, as with Perseus's
            clients, so two may change over at different iterations.
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
        plans: PlanSource | None = None,
        clock: ClockBackend | None = None,
        record: Callable[[], GpuEvent] = _record_event,
    ) -> None:
        """Check the plan and open the clock."""
        if not 0 <= device < schedule.placement.num_devices:
            raise ScriptError(
                f"device: {device} is not in {schedule.placement.name}; its devices are 0 to "
                f"{schedule.placement.num_devices - 1}"
            )
        self._schedule, self._device = schedule, device
        self._runs = _runs(schedule, clock_mhz, device)
        self._position = 0
        self._plans, self._record = plans, record
        self._clock = clock or open_gpu_clock(self._runs, torch_device, latency)
        self.description = self._clock.description

    @classmethod
    def from_files(
        cls,
        schedule: str | Path,
        plan: str | Path,
        device: int,
        torch_device: torch.device = CPU,
        **more: Any,
    ) -> SpeedController:
        """Return the controller of a device for a ``schedule.json`` and one of its plans.

        Args:
            schedule: Schedule as `experiments.frontier` and `experiments.run` write it.
            plan: ``plan.json``, or another with clocks for each micro-batch, such as ``switched.json``.
            device: Device of the placement.
            torch_device: Where it computes.
            **more: See `SpeedController`.

        Raises:
            ValueError: A file cannot be read, or does not have the clocks of the schedule.
        """
        found = read_schedule(schedule)
        clocks = read_clocks(found, plan)
        try:
            return cls(found, clocks, device, torch_device, **more)
        except ScriptError as error:
            raise ScriptError(f"{plan}: {error}") from None

    @property
    def requests(self) -> list[int]:
        """Return every clock asked for, in order; MHz."""
        return self._clock.requests

    def set_speed(self, type: str) -> int:
        """Ask for the clock of the next computation of the device, and return it in MHz.

        It is called right before that computation, when what it takes is there. After the last one of an
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
        if not self._is_of(run, type):
            raise ScriptError(
                f"device {self._device}: set_speed({type!r}) comes where the schedule has {run.block} of "
                f"micro-batch {run.micro_batch}, {self._position + 1} of {len(self._runs)}; run the blocks "
                "in its order, or make a plan for yours"
            )
        self._ask(run)
        self._position += 1
        assert run.clock_mhz is not None
        return run.clock_mhz

    def begin_iteration(self) -> None:
        """Expect the first computation next, at the newest plan's clock; needed only after an early end."""
        plan = self._plans.at_iteration_boundary() if self._plans is not None else None
        if plan is not None:
            self._follow(plan)
        self._position = 0
        if isinstance(self._clock, StreamClock):
            self._clock.begin_iteration()

    def close(self) -> None:
        """Give the clock back; nothing can be set afterwards."""
        self._clock.reset()

    def __enter__(self) -> SpeedController:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the clock back."""
        self.close()

    def _follow(self, plan: DeployedPlan) -> None:
        """Go over to a plan; one of another schedule is told of in the log, and the last one stays."""
        try:
            self._runs = _runs(self._schedule, plan.clock_mhz, self._device)
        except ScriptError as error:
            _LOG.warning("plan %d is not run: %s", plan.version, error)
            return
        if isinstance(self._clock, StreamClock):
            self._clock.follow(self._runs)

    def _is_of(self, run: BlockCall, type: str) -> bool:
        kind = self._schedule.placement.by_name[run.block].kind
        return type == run.block or kind in TYPES.get(type, ())

    def _ask(self, run: BlockCall) -> None:
        if not isinstance(self._clock, StreamClock):
            assert run.clock_mhz is not None
            self._clock.set(run.clock_mhz)
            return
        # Nobody says when the computation before has ended; it was before this one at the latest.
        event = self._record()
        self._clock.after(event)
        self._clock.before(event)


def read_clocks(schedule: Schedule, plan: str | Path) -> Mapping[str, Sequence[int]]:
    """Return the clocks of a file for each block and micro-batch of a schedule.

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
    """Return what a device runs in an iteration, with its clocks.

    Raises:
        ScriptError: One is missing.
    """
    number = schedule.num_micro_batches
    found = []
    for block, micro_batch in schedule.order(device):
        clocks = clock_mhz.get(block, ())
        wanted = micro_batches_of(schedule.placement, block, number)
        if len(clocks) != len(wanted) or any(type(clock) is not int or clock < 1 for clock in clocks):
            raise ScriptError(
                f"clock_mhz: {block} has {list(clocks)} for {len(wanted)} micro-batches; give a plan of this "
                "schedule"
            )
        found.append(BlockCall(block, micro_batch, clocks[micro_batch - wanted.start]))
    return found
