"""EnvPipe: slow down what is inside the envelope of a pipeline, as long as the pipeline stays as fast.

Choi et al., USENIX ATC 2023; as compared with in Perseus, Sec. 6. One plan, with no notion of a deadline.
EnvPipe takes the last stage of a 1F1B pipeline for the heaviest and runs it at the highest clock throughout,
and so the way into the pipeline and the way out. All else starts at its clock of least energy (waiting not
counted) and is sped up, step by step, where it is on the critical path.

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
    graph = problem.graph
    curves = {}
    for name, each in problem.profile.points.items():
        points = sorted(each, key=lambda point: (point.time_ms, -point.clock_mhz))
        clock, time, energy = zip(*((p.clock_mhz, p.time_ms, p.energy_mj) for p in points), strict=True)
        curves[name] = CostCurve(np.array(clock), np.array(time), np.array(energy))
    table = ModeTable.of(graph.runs, curves)
    path, inside = _CriticalPath(problem.schedule, graph), envelope(problem.schedule)
    least = table.energy_mj.argmin(axis=1)[table.row]  # waiting not counted; of equal ones the fastest
    choice = np.where([each in inside for each in graph.instances], 0, least)
    while True:
        critical = path.of(table.times(choice[:, None])[:, 0])
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
    own = [name for name in depth if len(devices[name]) < placement.num_devices] or list(depth)
    deepest = max((depth[name] for name in own), default=0)
    return {device for name in own if depth[name] == deepest for device in devices[name]}


class _CriticalPath:
    """Walks back from the end, on the same device where the block before was waited for, else to an input."""

    def __init__(self, schedule: Schedule, graph: InstanceGraph) -> None:
        index = {each: i for i, each in enumerate(graph.instances)}
        self.graph = graph
        self.on_device: list[list[int]] = [[] for _ in graph.instances]
        self.inputs: list[list[tuple[int, float]]] = [[] for _ in graph.instances]
        for order in schedule.lane_orders:
            for before, after in pairwise(index[each] for each in order):
                self.on_device[after].append(before)
        for before, after, delay in graph.edges:
            self.inputs[after].append((before, delay))

    def of(self, time_ms: Floats) -> Ints:
        """Return the instances of one critical path; each instance's time is given."""
        start = self.graph.earliest_start(time_ms[:, None])[:, 0]
        end = start + time_ms
        threshold_ms = THRESHOLD * float(end.max())
        at = int(end.argmax())
        path = [at]
        while self.inputs[at]:
            before = max(self.on_device[at], key=lambda i: end[i], default=None)
            if before is None or start[at] - end[before] > threshold_ms:
                before, _ = max(self.inputs[at], key=lambda edge: end[edge[0]] + edge[1])
            at = before
            path.append(at)
        return np.array(path)
