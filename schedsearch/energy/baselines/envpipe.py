"""EnvPipe: slow down the blocks inside the envelope of a pipeline, as long as the pipeline stays as fast.

Choi et al., USENIX ATC 2023; as compared with in Perseus, Sec. 6. One plan, with no notion of a deadline.
EnvPipe takes the last stage of a 1F1B pipeline for the heaviest and runs it at the highest clock throughout,
and so the way into the pipeline and the way out. Every other block starts at its clock of least energy
(waiting not counted) and is sped up, step by step, where it is on the critical path.

EnvPipe is defined for one stage per device. Here the last stage is all devices of the deepest forward block,
blocks on all devices aside, which are nobody's; the way in is the first run of every forward block, the way
out the last run of every other. For 1F1B on a V-shape that is EnvPipe's own envelope.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from placements import Kind, Placement
from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import Floats, InstanceGraph, Ints
from schedsearch.energy.problem import ClockProblem, Clocks, ModeTable, clocks_by_block
from schedsearch.schedule import Instance, Schedule

THRESHOLD = 1e-9
"""Share of the iteration up to which a block is taken not to have waited for its inputs."""


def envpipe(problem: ClockProblem) -> Clocks:
    """Return EnvPipe's clocks, with its balanced way to speed up a critical path.

    Each round takes one critical path and raises all of its blocks at the lowest clock of the path by one
    step. It ends when all of the path is at its highest clocks, as in the envelope. Where measured times do
    not fall with the clock, the highest clock is the fastest one, and a step leads to the next faster one.
    """
    graph, schedule = problem.graph, problem.schedule
    curves = {}
    for name, points in problem.profile.points.items():
        rows = sorted((point.time_ms, -point.clock_mhz, point.energy_mj) for point in points)
        time, minus_clock, energy = zip(*rows, strict=True)
        curves[name] = CostCurve(tuple(-clock for clock in minus_clock), np.array(time), np.array(energy))
    table = ModeTable.of(graph.runs, curves)
    index = {instance: i for i, instance in enumerate(graph.instances)}
    neighbors = {(index[a], index[b]) for order in schedule.lane_orders for a, b in pairwise(order)}
    inside = envelope(schedule)
    least = table.energy_mj.argmin(axis=1)[table.row]  # waiting not counted; of equal ones the fastest
    choice = np.where([instance in inside for instance in graph.instances], 0, least)
    while True:
        critical = _critical_path(graph, neighbors, table.times(choice[:, None])[:, 0])
        slower = critical[choice[critical] > 0]
        clocks = table.clock_mhz[table.row, choice]
        if len(slower) == 0:
            return clocks_by_block(graph, clocks[:, None])[0]
        choice[slower[clocks[slower] == clocks[slower].min()]] -= 1


def envelope(schedule: Schedule) -> set[Instance]:
    """Return the instances that run at the highest clock throughout."""
    placement = schedule.placement
    last = last_devices(placement)
    start = schedule.start_of
    inside = {key for key in start if last & set(placement.by_name[key[0]].devices)}
    for name, numbers in schedule.runs_of.items():
        runs = sorted(((name, n) for n in numbers), key=lambda key: start[key])
        inside.add(runs[0] if placement.by_name[name].kind is Kind.F else runs[-1])
    return inside


def last_devices(placement: Placement) -> set[int]:
    """Return the devices of the deepest forward blocks; blocks on all devices count only if all are.

    >>> from placements.shapes import v_shape, x_shape
    >>> last_devices(v_shape(4)), last_devices(x_shape(4))
    ({3}, {0, 3})
    """
    depth: dict[str, int] = {}
    for block in placement.topological_order:
        if block.kind is Kind.F:
            depth[block.name] = 1 + max((depth.get(name, 0) for name in block.after), default=0)
    devices = {name: placement.by_name[name].devices for name in depth}
    counted = [name for name in depth if len(devices[name]) < placement.num_devices] or list(depth)
    deepest = max((depth[name] for name in counted), default=0)
    return {device for name in counted if depth[name] == deepest for device in devices[name]}


def _critical_path(graph: InstanceGraph, neighbors: set[tuple[int, int]], time_ms: Floats) -> Ints:
    """Return the instances of one critical path.

    It walks back from the end, on the same device where the block before was waited for, else to an input.
    """
    start = graph.earliest_start(time_ms[:, None])[:, 0]
    end = start + time_ms
    path = [int(end.argmax())]
    while True:
        at = path[-1]
        edges = slice(graph.first[at], graph.first[at + 1])
        inputs = graph.tail[edges].tolist()
        if not inputs:
            return np.array(path)
        before = max((i for i in inputs if (i, at) in neighbors), key=lambda i: end[i], default=None)
        if before is None or start[at] - end[before] > THRESHOLD * float(end.max()):
            before = inputs[int((end[inputs] + graph.delay_ms[edges]).argmax())]
        path.append(before)
