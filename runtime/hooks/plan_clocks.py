"""``with schedsearch.clocks(plan, model): ...``: the clocks of a plan in a loop that knows nothing of them.

Or the loop says by itself what it computes next, by `set_speed` (Perseus, Table 2). A clock that cannot be
set any more never ends a training: the log says so once, and the GPU has its clock back. A loop that computes
in another order than the plan's is told at once, as the plan is not for it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from placements import Kind
from placements.forms.texts import read_json
from runtime.clocks.clock import ClockBackend, ClockError
from runtime.clocks.gpu_clock import open_gpu_clock, record_event
from runtime.clocks.stream_clock import StreamClock
from runtime.hooks.watching import Undo, blocks_of_stages, torch_stages, watch_module, watch_stage
from runtime.program.calls import ScriptError
from runtime.program.instructions import Run
from schedsearch.energy import FrequencyPlan
from schedsearch.schedule import Schedule, micro_batches_of
from schedsearch.schedule_file import read_schedule

TYPES: Mapping[str, tuple[Kind, ...]] = {"forward": (Kind.F,), "backward": (Kind.B, Kind.I, Kind.W)}
"""Perseus's types, for which a block's name may stand as well."""

_LOG = logging.getLogger(__name__)


class PlanClocks:
    """Sets the clocks of one device of a plan while a training loop runs.

    Args:
        plan: Folder with ``plan.json`` and ``schedule.json``, as `schedsearch frontier` writes them;
            or another file of a plan beside its ``schedule.json``; or a plan of a frontier, with its
            ``schedule``.
        watched: Modules or stages that compute, if they are there already; see `watch`.
        schedule: Schedule of the plan, or its file.
        device: Device of the placement, the rank of the pipeline, or a function that returns it when the
            first thing is watched. By default that of torch's stages, else of this process if there are as
            many processes as devices.
        clock: Takes the requests instead of the clock of the GPU.

    Attributes:
        num_micro_batches: Micro-batches of an iteration.

    Raises:
        ValueError: A file cannot be read, or is no plan of the schedule.
    """

    def __init__(
        self,
        plan: str | Path | FrequencyPlan,
        watched: Any = None,
        *,
        schedule: str | Path | Schedule | None = None,
        device: int | Callable[[], int] | None = None,
        clock: ClockBackend | None = None,
    ) -> None:
        """Read the plan; nothing is watched and no clock set before ``with``."""
        self._schedule, self._clock_mhz = _read(plan, schedule)
        self.num_micro_batches = self._schedule.num_micro_batches
        self._stages = blocks_of_stages(self._schedule.placement)
        self._watched, self._device, self._given = watched, device, clock
        self._clock: ClockBackend | None = None
        self._undo: list[Undo] = []
        self._number: int | None = None
        self._runs: list[Run] = []
        self._position = 0
        self._num_modules, self._is_entered = 0, False

    def __enter__(self) -> PlanClocks:
        self._is_entered = True
        if self._watched is not None:
            self.watch(self._watched)
        return self

    def __exit__(self, *error: object) -> None:
        """Give the clock back, and leave all that was watched as it was."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        self._num_modules, self._is_entered = 0, False
        if self._clock is not None:
            self._clock.reset()
        self._clock = self._number = None

    @property
    def description(self) -> str:
        """Return one line: the fate of the requests."""
        return "nothing is watched" if self._clock is None else self._clock.description

    @property
    def requests(self) -> list[int]:
        """Return every clock asked for, in order; MHz."""
        return [] if self._clock is None else self._clock.requests

    def watch(self, watched: Any) -> None:
        """Set the clocks of modules or stages from now on.

        Args:
            watched: A schedule of `torch.distributed.pipelining`, such as torchtitan's
                ``trainer.pp_schedule``; or its stages; or the module of a stage; or several, in the order in
                which data goes through those of this device.

        Raises:
            ScriptError: The plan has others on this device.
        """
        if not self._is_entered:
            raise ScriptError("clocks: are set inside of a with statement only, so that they are given back")
        if stages := torch_stages(watched):
            self._open(stages[0].group_rank, stages[0].device)
            there, wanted = [stage.stage_index for stage in stages], [*map(self._stages.index, self._own)]
            if sorted(there) != wanted:
                raise ScriptError(
                    f"stages: this rank has {there}, and device {self._number} of the plan has {wanted}; "
                    "make a plan for this placement, or give device="
                )
            for stage in stages:
                self._undo.append(watch_stage(stage, self._stages[stage.stage_index], self.set_speed))
            return
        for module in [watched] if isinstance(watched, nn.Module) else list(watched):
            self._open(None, next((weight.device for weight in module.parameters()), torch.device("cpu")))
            if self._num_modules == len(self._own):
                raise ScriptError(
                    f"modules: device {self._number} of the plan has stages for {len(self._own)}, and here "
                    "is one more; make a plan for this placement"
                )
            blocks = self._own[self._num_modules]
            if Kind.B not in blocks:
                raise ScriptError(
                    f"modules: the plan splits the backward of {blocks[Kind.F]}, and a module does not tell "
                    "its halves; watch stages of torch, or call set_speed"
                )
            self._undo.append(watch_module(module, blocks[Kind.F], blocks[Kind.B], self.set_speed))
            self._num_modules += 1

    def watching(self, build: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that builds as before, and has its modules or stages watched.

        Args:
            build: Such as Megatron-LM's ``model_provider``, called for each chunk of this device in order, or
                a ``pipelining_fn`` of torchtitan, whose first result is a schedule.
        """

        def built(*arguments: Any, **options: Any) -> Any:
            result = build(*arguments, **options)
            self.watch(result[0] if isinstance(result, tuple) and torch_stages(result[0]) else result)
            return result

        return built

    def callback(self, base: type) -> Any:
        """Return a callback of Lightning, for a plan of one device, derived from its ``Callback``.

        Raises:
            ScriptError: When training begins, if gradients are accumulated over other micro-batches.
        """

        def begin(callback: Any, trainer: Any, module: Any) -> None:
            wanted = self.num_micro_batches
            if trainer.accumulate_grad_batches != wanted:
                raise ScriptError(
                    f"accumulate_grad_batches: is {trainer.accumulate_grad_batches}, and the plan is for "
                    f"{wanted} micro-batches; set it to {wanted}, or make a plan for yours"
                )
            self.__enter__()

        hooks = {
            "on_fit_start": begin,
            "on_train_epoch_start": lambda *_: self.begin_iteration(),  # the last of an epoch may be short
            "on_train_batch_start": lambda *_: self.set_speed("forward"),
            "on_before_backward": lambda *_: self.set_speed("backward"),
            "on_exception": lambda *_: self.__exit__(),
            "teardown": lambda *_, **__: self.__exit__(),
        }
        return type("PlanClocksCallback", (base,), hooks)()

    def set_speed(self, type: str) -> None:
        """Ask for the clock of the next computation of the device.

        It is called right before that computation, when its inputs are there. After the last one of an
        iteration the first one is next.

        Args:
            type: Its block, or ``forward`` or ``backward``.

        Raises:
            ScriptError: The plan has something else next, or a CUDA graph is captured.
        """
        if not self._is_entered:
            return
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise ScriptError(
                "clocks: a CUDA graph is captured, whose replays tell of no computation; train without CUDA "
                "graphs (torchtitan: --training.disable_cuda_graphs)"
            )
        self._open(None, None)
        if self._clock is None:
            return
        run = self._next(type)
        assert run.clock_mhz is not None
        try:
            if isinstance(self._clock, StreamClock):
                # Nobody says when the computation before has ended; it was before this one at the latest.
                event = record_event(sleeps=True)
                self._clock.after(event)
                self._clock.before(event)
            else:
                self._clock.set(run.clock_mhz)
        except ClockError as error:
            _LOG.warning("training goes on and its clocks are not set any more: %s", error)
            self._clock.reset()
            self._clock = None

    def begin_iteration(self) -> None:
        """Expect the first computation next; needed only where an iteration ended early."""
        self._position = 0
        if isinstance(self._clock, StreamClock):
            self._clock.begin_iteration()

    def _next(self, type: str) -> Run:
        """Return the next computation of the plan, which is of this type."""
        if self._position == len(self._runs):
            self.begin_iteration()
        run = self._runs[self._position]
        kind = self._schedule.placement.by_name[run.block].kind
        if type != run.block and kind not in TYPES.get(type, ()):
            raise ScriptError(
                f"device {self._number}: set_speed({type!r}) comes where the schedule has {run.block} of "
                f"micro-batch {run.micro_batch}, {self._position + 1} of {len(self._runs)}; run the blocks "
                "in its order, or make a plan for yours"
            )
        self._position += 1
        return run

    @property
    def _own(self) -> list[dict[Kind, str]]:
        """Return the blocks of each stage of this device."""
        by_name = self._schedule.placement.by_name
        return [blocks for blocks in self._stages if self._number in by_name[blocks[Kind.F]].devices]

    def _open(self, rank: int | None, where: torch.device | None) -> None:
        """Open the clock, once; a clock that was lost stays so."""
        if self._number is not None:
            return
        number, placement = self._device_of(rank), self._schedule.placement
        if not 0 <= number < placement.num_devices:
            raise ScriptError(
                f"device: {number} is not in {placement.name}; its devices are 0 to "
                f"{placement.num_devices - 1}"
            )
        self._runs, self._position = _runs(self._schedule, self._clock_mhz, number), 0
        self._number = number
        if where is None or where.type == "meta":
            where = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if where == torch.device("cuda"):
            where = torch.device("cuda", torch.cuda.current_device())
        self._clock = self._given or open_gpu_clock(self._runs, where)
        _LOG.info("%s", self._clock.description)

    def _device_of(self, rank: int | None) -> int:
        if self._device is not None:
            return self._device() if callable(self._device) else self._device
        num_devices, size = self._schedule.placement.num_devices, int(os.environ.get("WORLD_SIZE", 1))
        if rank is not None or num_devices == 1:
            return rank or 0
        if size != num_devices:
            raise ScriptError(
                f"device: the plan has {num_devices} devices, and there are {size} processes; give device=, "
                "the rank of this process in its pipeline"
            )
        return int(os.environ["RANK"])


def _read(
    plan: str | Path | FrequencyPlan, schedule: str | Path | Schedule | None
) -> tuple[Schedule, Mapping[str, Sequence[int]]]:
    if isinstance(plan, FrequencyPlan):
        if schedule is None:
            raise ScriptError("schedule: is missing; give the schedule that the plan is for")
        return schedule if isinstance(schedule, Schedule) else read_schedule(schedule), plan.clock_mhz
    path = Path(plan) / "plan.json" if Path(plan).is_dir() else Path(plan)
    if not isinstance(schedule, Schedule):
        schedule = read_schedule(schedule or path.parent / "schedule.json")
    return schedule, read_clocks(schedule, path)


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


def _runs(schedule: Schedule, clock_mhz: Mapping[str, Sequence[int]], device: int) -> list[Run]:
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
        runs.append(Run(block, micro_batch, clock_mhz=clocks[micro_batch - wanted.start]))
    return runs
