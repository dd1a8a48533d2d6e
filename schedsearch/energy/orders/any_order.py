"""What no order and no modes of a placement's blocks can beat, at any clocks.

The bound leaves out who waits for whom, but for the ends: each stream of a device has the time between its
first block's inputs and what must follow its last block, and shares it among all its blocks as is best. A
block on several devices is shared equally among them, in parts that need not agree.

Where blocks have modes, each device mixes them as is best too, in as much memory times time as it has: each
micro-batch holds in a mode at least what `schedsearch.proof.mode_choice` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from placements import Block, Placement, Profile
from schedsearch.energy.cost import CostCurve, cost_curves
from schedsearch.energy.frontier import TIME_TOLERANCE
from schedsearch.energy.relaxed.highs import Rows, SolverStatus, minimized, status_of
from schedsearch.energy.waiting import waiting_w
from schedsearch.proof.mode_choice import needs_of
from schedsearch.schedule import Schedule, micro_batches_of

Curves = Mapping[str, CostCurve]


def any_order_mj(schedule: Schedule, profile: Profile, deadline_ms: float) -> float:
    """Return an energy until a deadline that no clocks of any order and modes of a placement are below.

    Args:
        schedule: Schedule whose placement and number of micro-batches count.
        profile: Cost of each block at each clock.
        deadline_ms: Deadline that some order keeps.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    curves = cost_curves(placement, profile)
    before, after = _fastest_paths(placement, curves)
    slack_ms: dict[int, float] = {}
    for lane in range(len(placement.lanes)):
        names = [block.name for block in placement.blocks if lane in placement.lanes_of(block)]
        ends_ms = min(map(before.__getitem__, names), default=0) + min(
            map(after.__getitem__, names), default=0
        )
        slack_ms[lane] = deadline_ms * (1 + TIME_TOLERANCE) - ends_ms
    effective_mj = 0.0
    for device in range(placement.num_devices):
        if not placement.on(device):
            continue
        if placement.is_plain:
            effective_mj += _filled_mj(placement, curves, number, device, slack_ms[device])
        else:
            effective_mj += _Mix(placement, curves, number, device).min_mj(slack_ms, deadline_ms)
    return effective_mj + waiting_w(placement, profile) * deadline_ms


def _filled_mj(placement: Placement, curves: Curves, number: int, device: int, slack_ms: float) -> float:
    """Return the least energy of a device whose blocks have no modes: steepest slopes first."""
    effective_mj = 0.0
    lengths, slopes = [], []
    for block in placement.on(device):
        curve, runs = curves[block.name], len(micro_batches_of(placement, block.name, number))
        time, energy = curve.time_ms[curve.hull], curve.energy_mj[curve.hull] / len(block.devices)
        slack_ms -= runs * float(time[0])
        effective_mj += runs * float(energy[0])
        lengths.append(runs * np.diff(time))
        slopes.append(np.diff(energy) / np.diff(time))
    length, slope = np.concatenate(lengths), np.concatenate(slopes)
    steepest = np.argsort(slope, kind="stable")
    ends = np.minimum(np.cumsum(length[steepest]), max(slack_ms, 0.0))
    return effective_mj + float(slope[steepest] @ np.diff(ends, prepend=0.0))


class _Way(NamedTuple):
    """A choice of a decision, as a device runs it; or all of which nothing is decided.

    Attributes:
        runs: Its blocks, each with its name in the mode and how often a micro-batch runs it.
        held: Least memory times ticks of a micro-batch.
    """

    runs: list[tuple[str, Block, float]]
    held: int


class _Mix:
    """A linear program: how often a device takes each choice, and how long its blocks take."""

    def __init__(self, placement: Placement, curves: Curves, number: int, device: int) -> None:
        self.placement, self.curves, self.number, self.device = placement, curves, number, device

    def min_mj(self, slack_ms: Mapping[int, float], deadline_ms: float) -> float:
        """Return the least effective energy of all micro-batches; each at its cheapest if HiGHS fails."""
        placement, device = self.placement, self.device
        decisions = [list(ways) for ways in self._decisions()]
        cost, upper = list[float](), list[float]()
        rows, equal = Rows(), Rows()
        on_lane: dict[int, list[tuple[int, float]]] = {
            lane: [] for lane, (at, _) in enumerate(placement.lanes) if at == device
        }
        memory: list[tuple[int, float]] = []
        cheapest_mj = 0.0
        for ways in decisions:
            counts = [len(cost) + i for i in range(len(ways))]
            cost += [0.0] * len(ways)
            upper += [float(self.number)] * len(ways)
            _add(equal, float(self.number), [(column, 1.0) for column in counts])
            cheapest = []
            for count, way in zip(counts, ways, strict=True):
                memory.append((count, float(way.held)))
                cheapest.append(0.0)
                for name, block, times in way.runs:
                    curve = self.curves[name]
                    time = times * curve.time_ms[curve.hull]
                    energy = times * curve.energy_mj[curve.hull] / len(block.devices)
                    cost[count] += float(energy[0])
                    cheapest[-1] += float(energy[-1])
                    lanes = [lane for lane in placement.lanes_of(block) if lane in on_lane]
                    for lane in lanes:
                        on_lane[lane].append((count, float(time[0])))
                    for length, saved in zip(np.diff(time).tolist(), np.diff(energy).tolist(), strict=True):
                        longer = len(cost)
                        cost.append(saved / length)
                        upper.append(self.number * length)
                        _add(rows, 0.0, [(longer, 1.0), (count, -length)])
                        for lane in lanes:
                            on_lane[lane].append((longer, 1.0))
            cheapest_mj += self.number * min(cheapest)
        for lane, terms in on_lane.items():
            if terms:
                _add(rows, max(slack_ms[lane], 0.0), terms)
        if placement.free_memory is not None:
            room = placement.free_memory[device] * deadline_ms * (1 + TIME_TOLERANCE) / placement.tick_ms
            scale = self._fastest / max(room, 1.0)
            _add(rows, room / max(room, 1.0), [(column, held * scale) for column, held in memory])
        answer = minimized(np.array(cost), np.array(upper), rows, equal=equal)
        return float(answer.fun) if status_of(answer) is SolverStatus.OPTIMAL else cheapest_mj

    def _decisions(self) -> Iterator[Iterator[_Way]]:
        """Yield the ways of each decision about the device, and at last all that is not decided."""
        placement = self.placement
        needs = needs_of(placement, self.device)
        for i, found in needs.items():
            if i is not None:
                choices = placement.decisions[i].choices
                yield (
                    _Way(
                        [
                            (placement.name_in(choice, name), block, 1.0)
                            for name in placement.decisions[i].blocks
                            if (block := choice.by_name.get(name, placement.by_name[name])).time
                            and self.device in block.devices
                        ],
                        need.held,
                    )
                    for choice, need in zip(choices, found, strict=True)
                )
        others = [block for block in placement.on(self.device) if block.name not in placement.decision_of]
        runs = [
            (b.name, b, len(micro_batches_of(placement, b.name, self.number)) / self.number) for b in others
        ]
        yield iter([_Way(runs, needs[None][0].held)])

    @property
    def _fastest(self) -> float:
        """The least time of any block at some clock, as a share of what the placement says; 1 at most.

        What is held is known for the times of the placement.
        """
        runs = self.placement.runs.items()
        return min(1.0, *(float(self.curves[k].time_ms[0]) / self.placement.ms(b.time) for k, b in runs))


def _add(rows: Rows, limit: float, terms: list[tuple[int, float]]) -> None:
    """Add one row of (column, value) to a program."""
    columns, values = zip(*terms, strict=True)
    rows.add(np.array([limit]), (np.zeros(len(terms), dtype=np.int64), np.array(columns), np.array(values)))


def _fastest_paths(placement: Placement, curves: Curves) -> tuple[dict[str, float], dict[str, float]]:
    """Return the least time of each block from the begin to its start, and from its end to the end."""
    pairs = [
        (name, block.name, placement.ms(placement.transfer_time(name, block.name)))
        for block in placement.blocks
        for name in block.after
    ]
    fastest = {
        name: 0.0
        for name in placement.by_name
        if any(not block.time for block in placement.alternatives(name))
    }
    for run, block in placement.runs.items():
        min_ms = float(curves[run].time_ms[0])
        fastest[block.name] = min(fastest.get(block.name, min_ms), min_ms)
    before, after = dict.fromkeys(fastest, 0.0), dict.fromkeys(fastest, 0.0)
    for _ in placement.blocks:  # at most so many steps in a row
        for a, b, delay in pairs:
            before[b] = max(before[b], before[a] + fastest[a] + delay)
            after[a] = max(after[a], delay + fastest[b] + after[b])
    return before, after
