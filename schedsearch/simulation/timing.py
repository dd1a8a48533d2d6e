"""Ends of a schedule's blocks in many iterations, given drawn times, in the order of the schedule.

Without shared links, a block starts at the latest of known ends, as in a timed event graph (max-plus
algebra): a maximum and a sum for each wait, all iterations at once, some microseconds for a thousand. Where
devices share a link, its messages are taken in the order in which they are there to be sent, one iteration
after the other: about two microseconds for each block and each message. Where streams slow each other down,
`schedsearch.side_by_side` runs each iteration: some milliseconds for a hundred blocks.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from schedsearch import side_by_side
from schedsearch.schedule import Instance, Schedule
from schedsearch.simulation.conditions import ConditionsError
from schedsearch.simulation.messages import NO_LINK, BlockOutput, IterationSteps

Ticks = NDArray[np.float64]
"""Ticks of each step in each iteration; shape ``(steps, iterations)``."""

_PARTS = 1000
"""Parts of a tick for times that are not whole ticks, if streams slow each other down."""


def ends_together(steps: IterationSteps, times: Ticks) -> Ticks:
    """Return the end of each block in ticks, for all iterations at once; no link may be shared."""
    ends = np.zeros_like(times)
    free_from = np.zeros((steps.num_links, times.shape[1]))
    ready = dict[int, Ticks]()
    begin = np.zeros(times.shape[1])

    def hold_up(target: int, tick: Ticks) -> None:
        known = ready.get(target)
        ready[target] = tick if known is None else np.maximum(known, tick)

    for group in steps.groups:
        starts = [ready.pop(position) for position in group if position in ready]
        start = np.maximum.reduce(starts) if starts else begin
        for position in group:
            end = ends[position] = start + times[position]
            for target, link, occupied, latency, _ in steps.steps[position].messages:
                if link == NO_LINK:
                    hold_up(target, end + occupied if occupied else end)
                else:
                    free_from[link] = np.maximum(end, free_from[link]) + occupied
                    hold_up(target, free_from[link] + latency)
            for wait in steps.steps[position].waits:
                hold_up(wait.target, start if wait.from_start else end)
    return ends


def ends_by_events(steps: IterationSteps, times: Ticks) -> Ticks:
    """Return the end of each block in ticks, with any links, message by message.

    Whatever follows from a message is there no earlier than itself, so that all are taken in order.
    """
    group_of = {position: i for i, group in enumerate(steps.groups) for position in group}
    missing = [0] * len(steps.groups)
    at_once: list[list[tuple[int, float, bool]]] = [[] for _ in steps.steps]
    by_link: list[list[tuple[int, BlockOutput]]] = [[] for _ in steps.steps]
    for position, step in enumerate(steps.steps):
        for number, message in enumerate((*step.messages, *step.waits)):
            group = group_of[message.target]
            missing[group] += 1
            if message.link == NO_LINK:
                at_once[position].append((group, message.occupied, message.from_start))
            else:
                by_link[position].append((number, message))
    first = [group for group, number in enumerate(missing) if not number]
    ends = np.zeros_like(times)
    for iteration, took in enumerate(times.T.tolist()):
        left, ready, known = missing.copy(), [0.0] * len(missing), first.copy()
        free_from = [0.0] * steps.num_links
        end = [0.0] * len(took)
        waiting: list[tuple[float, int, int, BlockOutput]] = []
        while known or waiting:
            arrivals: list[tuple[int, float]] = []
            if known:
                group = known.pop()
                start = ready[group]
                for position in steps.groups[group]:
                    done = end[position] = start + took[position]
                    arrivals += [
                        (to, start if early else done + ticks) for to, ticks, early in at_once[position]
                    ]
                    for number, message in by_link[position]:
                        heapq.heappush(waiting, (done, position, number, message))
            else:
                sent, _, _, message = heapq.heappop(waiting)
                free_from[message.link] = max(sent, free_from[message.link]) + message.occupied
                arrivals.append((group_of[message.target], free_from[message.link] + message.latency))
            for group, tick in arrivals:
                ready[group] = max(ready[group], tick)
                left[group] -= 1
                if not left[group]:
                    known.append(group)
        ends[:, iteration] = end
    return ends


def ends_side_by_side(schedule: Schedule, steps: IterationSteps, times: Ticks) -> tuple[Ticks, Ticks]:
    """Return the end and the time of each block in each iteration, if streams slow each other down.

    No message may have a link; `times` are without slowdown.

    Raises:
        ConditionsError: Blocks start together, as they swap memory, which no such iteration knows.
    """
    if len(steps.groups) < len(steps.steps):
        raise ConditionsError(
            f"schedule: blocks of {schedule.placement.name} swap memory at one tick where streams slow each "
            "other down; give them a transient, or leave `slowdown` out of the placement"
        )
    delays = [message.occupied for step in steps.steps for message in step.messages]
    is_whole = (times == np.round(times)).all() and all(delay == round(delay) for delay in delays)
    parts = 1 if is_whole else _PARTS
    names = [step.instance for step in steps.steps]
    waits: dict[Instance, list[side_by_side.Wait]] = {instance: [] for instance in names}
    for step in steps.steps:
        for output in (*step.messages, *step.waits):
            wait = side_by_side.Wait(step.instance, round(output.occupied * parts), not output.from_start)
            waits[names[output.target]].append(wait)
    blocks = {instance: schedule.block(*instance) for instance in names}
    ends, took = np.zeros_like(times), np.zeros_like(times)
    for i, column in enumerate(times.T.tolist()):
        ticks = dict(zip(names, column, strict=True))
        timed = {key: replace(blocks[key], time=round(ticks[key] * parts)) for key in names}
        start, end = side_by_side.run(schedule.placement, timed, waits, {})
        ends[:, i] = [end[instance] / parts for instance in names]
        took[:, i] = [(end[instance] - start[instance]) / parts for instance in names]
    return ends, took
