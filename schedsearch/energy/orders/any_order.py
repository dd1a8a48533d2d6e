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
from schedsearch.energy.programs import Rows, SolverError, minimized
from schedsearch.energy.simulation import waiting_w
from schedsearch.proof.mode_choice import needs_of
from schedsearch.schedule import Schedule, micro_batches_of

Curves = Mapping[str, CostCurve]


class _Way(NamedTuple):
    """A choice of a decision, as a device runs it; or all of which nothing is decided.

    Attributes:
        runs: Its blocks, each with its name in the mode and how often a micro-batch runs it.
        held: Least memory times ticks of a micro-batch.
    """

    runs: list[tuple[str, Block, float]]
    held: int


def any_order_mj(schedule: Schedule, profile: Profile, deadline_ms: float) -> float:
    """Return an energy until a deadline that no clocks of any order and modes of a placement are below.

    The columns of its linear program are how often each device takes each choice, and how much longer than at
    the fastest clocks its blocks take. If HiGHS fails, all micro-batches are at their cheapest.

    Args:
        schedule: Schedule whose placement and number of micro-batches count.
        profile: Cost of each block at each clock.
        deadline_ms: Deadline that some order keeps.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    curves, until_ms = cost_curves(placement, profile), deadline_ms * (1 + TIME_TOLERANCE)
    cost, upper, cheapest_mj = list[float](), list[float](), 0.0
    rows, equal = Rows(), Rows()
    on_lane: dict[int, list[tuple[int, float]]] = {lane: [] for lane in range(len(placement.lanes))}
    for device in range(placement.num_devices):
        memory: list[tuple[int, float]] = []
        for ways in _decisions(placement, number, device):
            counts = range(len(cost), len(cost) + len(ways))
            cost += [0.0] * len(ways)
            upper += [float(number)] * len(ways)
            _add(equal, float(number), [(column, 1.0) for column in counts])
            least = [0.0] * len(ways)
            for k, (count, way) in enumerate(zip(counts, ways, strict=True)):
                memory.append((count, float(way.held)))
                for name, block, times in way.runs:
                    curve = curves[name]
                    time = times * curve.time_ms[curve.hull]
                    energy = times * curve.energy_mj[curve.hull] / len(block.devices)
                    cost[count] += float(energy[0])
                    least[k] += float(energy[-1])
                    lanes = [lane for lane in placement.lanes_of(block) if placement.lanes[lane][0] == device]
                    parts = [(count, float(time[0]))]
                    for length, saved in zip(np.diff(time).tolist(), np.diff(energy).tolist(), strict=True):
                        longer = len(cost)
                        cost.append(saved / length)
                        upper.append(number * length)
                        _add(rows, 0.0, [(longer, 1.0), (count, -length)])
                        parts.append((longer, 1.0))
                    for lane in lanes:
                        on_lane[lane] += parts
            cheapest_mj += number * min(least)
        if placement.free_memory is not None and any(held for _, held in memory):
            room = placement.free_memory[device] * until_ms / placement.tick_ms
            scale = _fastest_share(placement, curves) / max(room, 1.0)
            _add(rows, room / max(room, 1.0), [(column, held * scale) for column, held in memory])
    before, after = _fastest_paths(placement, curves)
    for lane, terms in on_lane.items():
        names = [block.name for block in placement.blocks if lane in placement.lanes_of(block)]
        if terms:
            ends_ms = min(map(before.__getitem__, names)) + min(map(after.__getitem__, names))
            _add(rows, max(until_ms - ends_ms, 0.0), terms)
    effective_mj = cheapest_mj
    try:
        answer = minimized(np.array(cost), np.array(upper), rows, equal=equal)
        effective_mj = cheapest_mj if answer is None else float(answer.fun)
    except SolverError:
        pass
    return effective_mj + waiting_w(placement, profile) * deadline_ms


def _decisions(placement: Placement, number: int, device: int) -> Iterator[list[_Way]]:
    """Yield the ways of each decision about a device, and at last all that is not decided."""
    needs = {} if placement.is_plain else needs_of(placement, device)
    for i, found in needs.items():
        if i is not None:
            yield [
                _Way(
                    [
                        (placement.name_in(choice, name), block, 1.0)
                        for name in placement.decisions[i].blocks
                        if (block := choice.by_name.get(name, placement.by_name[name])).time
                        and device in block.devices
                    ],
                    need.held,
                )
                for choice, need in zip(placement.decisions[i].choices, found, strict=True)
            ]
    others = [block for block in placement.on(device) if block.name not in placement.decision_of]
    runs = [(b.name, b, len(micro_batches_of(placement, b.name, number)) / number) for b in others]
    yield [_Way(runs, needs[None][0].held if needs else 0)]


def _fastest_share(placement: Placement, curves: Curves) -> float:
    """Return the least time of any block at some clock, as a share of what the placement says; 1 at most.

    What is held is known for the times of the placement.
    """
    runs = placement.runs.items()
    return min(1.0, *(float(curves[name].time_ms[0]) / placement.ms(block.time) for name, block in runs))


def _add(rows: Rows, limit: float, terms: list[tuple[int, float]]) -> None:
    columns, values = zip(*terms, strict=True)
    rows.add(np.array([limit]), (np.zeros(len(terms), dtype=np.int64), np.array(columns), np.array(values)))


def _fastest_paths(placement: Placement, curves: Curves) -> tuple[dict[str, float], dict[str, float]]:
    """Return the least time of each block from the begin to its start, and from its end to the end."""
    left_out = {name for name in placement.by_name if any(not b.time for b in placement.alternatives(name))}
    fastest = dict.fromkeys(left_out, 0.0)
    for run, block in placement.runs.items():
        min_ms = float(curves[run].time_ms[0])
        fastest[block.name] = min(fastest.get(block.name, min_ms), min_ms)
    before, after = dict.fromkeys(fastest, 0.0), dict.fromkeys(fastest, 0.0)
    for _ in placement.blocks:  # at most so many steps in a row
        for block in placement.blocks:
            b = block.name
            for a in block.after:
                delay = placement.ms(placement.transfer_time(a, b))
                before[b] = max(before[b], before[a] + fastest[a] + delay)
                after[a] = max(after[a], delay + fastest[b] + after[b])
    return before, after
