"""Schedules, plans and the progress of a search as plain data and arrays, in JSON that a page can hold.

It knows what a page has to show, and nothing of how it is drawn.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placements import Profile
from placements.block import COMPUTE
from placements.streams import in_rows, lane_name
from schedsearch.core.answer import SearchProgress
from schedsearch.core.objective import Objective
from schedsearch.energy import FrequencyPlan, Frontier
from schedsearch.energy.graph import InstanceGraph, instance_graph, waiting_graph
from schedsearch.metrics import memory_over_time, peak_memory
from schedsearch.schedule import Instance, Schedule

Array = NDArray[Any]

Tree = dict[str, Any]
"""Plain data with arrays among the values."""

MOST_CLOCKS = 16_000_000
"""Clocks that a page holds, of all its plans: bytes, as there is one for each block of each plan."""


@dataclass(frozen=True)
class PagePlans:
    """Plans of one schedule among which a page chooses.

    Attributes:
        profile: Profile of every block at every clock.
        frontier: Its plans, by increasing time.
        chosen: Plan that the page shows first.
    """

    profile: Profile
    frontier: Frontier
    chosen: FrequencyPlan

    def shown(self, num_blocks: int) -> list[FrequencyPlan]:
        """Return the plans of a page: all of the frontier, or some evenly spread if they were too many.

        The chosen one is always there, and the highest clocks come last.
        """
        plans = self.frontier.plans
        most = max(MOST_CLOCKS // max(num_blocks, 1), 2)
        places = np.unique(np.linspace(0, len(plans) - 1, min(len(plans), most)).round().astype(int))
        kept = [plans[place] for place in places]
        if self.chosen not in kept:
            kept = sorted([*kept, self.chosen], key=lambda plan: plan.time_ms)
        return [*kept, self.frontier.all_maximum]


@dataclass(frozen=True)
class PageData:
    """Data of a page.

    Attributes:
        schedules: By title, in the order in which they stand above each other; at least one.
        memory_unit: Of `Block.memory`, for people.
        plans: Plans of the first schedule; None where there are none.
        progress: Events of the search, in order; empty where none were kept.
    """

    schedules: Mapping[str, Schedule]
    memory_unit: str = ""
    plans: PagePlans | None = None
    progress: Sequence[SearchProgress] = field(default=())

    def tree(self) -> Tree:
        """Return it as plain data and arrays."""
        in_mib = self.memory_unit == "MiB"
        trees = [schedule_tree(title, schedule, in_mib) for title, schedule in self.schedules.items()]
        first = next(iter(self.schedules.values()))
        return {
            "schedules": trees,
            "memory_unit": self.memory_unit or "units",
            "plans": plans_tree(first, self.plans) if self.plans else None,
            "progress": progress_tree(self.progress, first.placement.tick_ms),
        }


def schedule_tree(title: str, schedule: Schedule, in_mib: bool = False) -> Tree:
    """Return a schedule: its blocks in an order in which none is before one that it waits for.

    Arrays of blocks have the shape ``(num_blocks,)``; ``mode`` is an index into ``modes``, whose first name
    is empty. A row is a stream of a device. ``rows`` has the indices of its blocks in order; row r has the
    part from ``row_first[r]`` to ``row_first[r + 1]`` (CSR). ``held`` is a device's memory from the start of
    each of its blocks on; ``held_rows`` and ``held_first`` are the indices of these blocks. The predecessors
    of block i are ``before[before_first[i] : before_first[i + 1]]``, with the minimum delay in ``delay_ms``.
    Memory is in the placement's units, or in MiB if `in_mib` is set and the unit is known.
    """
    placement = schedule.placement
    unit = (placement.memory_unit_mib or 1.0) if in_mib else 1.0
    graph = waiting_graph(schedule)
    number_of = {block.name: i for i, block in enumerate(placement.blocks)}
    block = np.array([number_of[name] for name, _ in graph.instances])
    start = np.array([schedule.start_of[instance] for instance in graph.instances], dtype=np.int64)
    end = np.array([schedule.end_of[instance] for instance in graph.instances], dtype=np.int64)
    lanes = in_rows(placement.lanes)
    modes = [schedule.mode(*instance) for instance in graph.instances]
    names = ["", *dict.fromkeys(filter(None, modes))]
    devices = range(placement.num_devices)
    held = [memory_over_time(schedule, device)[1] for device in devices]
    return {
        "title": title,
        "num_devices": placement.num_devices,
        "num_micro_batches": schedule.num_micro_batches,
        "blocks": [
            {
                "name": spec.name,
                "kind": spec.kind.value,
                "devices": list(spec.devices),
                "rows": [lanes.index(lane) for lane in placement.lanes_of(spec)],
                "stream": "" if spec.stream == COMPUTE else spec.stream,
                "after": [number_of[name] for name in spec.after],
            }
            for spec in placement.blocks
        ],
        "capacity": None if placement.memory is None else [unit * capacity for capacity in placement.memory],
        "static": [unit * units for units in placement.static],
        "peak": (unit * peak_memory(schedule)).tolist(),
        "block": block.astype(np.uint16 if len(placement.blocks) < 2**16 else np.uint32),
        "micro_batch": np.array([n for _, n in graph.instances], dtype=np.uint32),
        "start_ms": start * placement.tick_ms,
        "end_ms": end * placement.tick_ms,
        "modes": names,
        "mode": np.array([names.index(mode) for mode in modes], dtype=np.uint8),
        "row_names": [lane_name(placement.lanes[lane]) for lane in lanes],
        "row_device": [placement.lanes[lane][0] for lane in lanes],
        **_orders(graph, [schedule.lane_orders[lane] for lane in lanes], "rows", "row_first"),
        **_orders(graph, [schedule.order(device) for device in devices], "held_rows", "held_first"),
        "held": unit * np.concatenate(held).astype(np.float64),
        **_waits(graph),
    }


def _orders(graph: InstanceGraph, orders: Sequence[Sequence[Instance]], name: str, first: str) -> Tree:
    """Return orders one after the other, as indices, and where each begins."""
    index = {instance: i for i, instance in enumerate(graph.instances)}
    indices = np.array([index[instance] for order in orders for instance in order], dtype=np.uint32)
    return {name: indices, first: _firsts([len(order) for order in orders])}


def _waits(graph: InstanceGraph) -> Tree:
    by_later = sorted(graph.edges, key=lambda edge: edge[1])
    counts = np.bincount([later for _, later, _ in by_later], minlength=graph.size)
    return {
        "before_first": _firsts(counts),
        "before": np.array([earlier for earlier, _, _ in by_later], dtype=np.uint32),
        "delay_ms": np.array([delay for _, _, delay in by_later], dtype=np.float64),
    }


def _firsts(counts: Sequence[int] | Array) -> Array:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)


def plans_tree(schedule: Schedule, plans: PagePlans) -> Tree:
    """Return plans: their figures, the costs of each block at each clock, and which clock each block has.

    Block i of the schedule runs as ``run[i]``: a block of the placement in a mode. The costs of run r are
    those from ``point_first[r]`` on, by increasing clock, and ``choice`` says which of them each block of the
    schedule has; shape ``(num_plans, num_blocks)``.
    """
    graph = instance_graph(schedule)
    shown = plans.shown(graph.size)
    costs = plans.profile.points
    by_clock = attrgetter("clock_mhz")
    points = {name: sorted(costs[name], key=by_clock) for name in schedule.placement.runs}
    every = [point for some in points.values() for point in some]
    number_of = {name: i for i, name in enumerate(points)}
    alone = {id(plan) for plan in plans.frontier.without_straggler}
    kind = np.uint8 if max(map(len, points.values())) < 2**8 else np.uint16
    return {
        "time_ms": [plan.time_ms for plan in shown],
        "energy_mj": [plan.energy_mj for plan in shown],
        "saving": [plans.frontier.saving(plan) for plan in shown],
        "until_ms": [max(plan.time_ms, plans.frontier.all_maximum.time_ms) for plan in shown],
        "training": [str(plans.frontier.training_figures(plan)) for plan in shown],
        "is_alone": [id(plan) in alone for plan in shown],
        "num_plans": len(plans.frontier.plans),
        "chosen": shown.index(plans.chosen),
        "blocking_power_w": plans.frontier.blocking_power_w,
        "clock_mhz": np.array([point.clock_mhz for point in every], dtype=np.float64),
        "time_of_point_ms": np.array([point.time_ms for point in every], dtype=np.float64),
        "power_w": np.array([point.time_ms and point.energy_mj / point.time_ms for point in every], float),
        "run": np.array([number_of[name] for name in graph.runs], dtype=np.uint32),
        "point_first": _firsts([len(some) for some in points.values()]),
        "choice": np.array([_choices(schedule, graph, points, plan) for plan in shown], dtype=kind),
    }


def _choices(
    schedule: Schedule, graph: InstanceGraph, points: Mapping[str, Sequence[Any]], plan: FrequencyPlan
) -> list[int]:
    """Return which of its points each instance has."""
    place = {name: {point.clock: i for i, point in enumerate(some)} for name, some in points.items()}
    clock = {
        (name, n): clock
        for name, clocks in plan.clock_mhz.items()
        for n, clock in zip(schedule.runs_of[name], clocks, strict=True)
    }
    return [place[run][clock[instance]] for run, instance in zip(graph.runs, graph.instances, strict=True)]


def progress_tree(progress: Sequence[SearchProgress], tick_ms: float) -> list[Tree]:
    """Return a search's best value and bound at each time, for each value that it made smaller.

    Times are of one micro-batch where they are of a repetend. Events that tell nothing new are left out.
    """
    phases: dict[str, list[tuple[float, float | None, float]]] = {}
    for event in progress:
        per = 1.0 if event.phase == Objective.MEMORY else tick_ms
        best = None if event.best is None else event.best * per
        row = (event.elapsed_s, best, event.bound * per)
        rows = phases.setdefault(event.phase, [])
        if not rows or rows[-1][1:] != row[1:]:
            rows.append(row)
    ends = {event.phase: event.elapsed_s for event in progress}
    return [
        {
            "phase": phase.replace("_", " "),
            "is_memory": phase == Objective.MEMORY,
            "end_s": ends[phase],
            "elapsed_s": [seconds for seconds, _, _ in rows],
            "best": [best for _, best, _ in rows],
            "bound": [bound for _, _, bound in rows],
        }
        for phase, rows in phases.items()
    ]


def packed(tree: Tree) -> bytes:
    """Return plain data as JSON; an array is ``{"array": [dtype, bytes]}``, little-endian bytes in base64."""

    def as_text(value: NDArray[Any]) -> Tree:
        data = value.astype(value.dtype.newbyteorder("<")).tobytes()
        return {"array": [str(value.dtype), base64.b64encode(data).decode("ascii")]}

    return json.dumps(tree, separators=(",", ":"), default=as_text).encode()
