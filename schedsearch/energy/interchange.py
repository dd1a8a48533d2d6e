"""Plans for other programs: CSV files of any schedule's plans, and the form that Zeus's server reads.

Zeus runs a plan from a Python file that holds a list for each stage, with an (instruction, MHz) pair for each
forward and backward in the order in which the stage runs them, and comments below. That form has no names for
other kinds of blocks, nor for a block on several devices.
"""

from __future__ import annotations

from collections.abc import Iterator

from placements import Kind, Placement, Profile
from placements.files import csv_text
from schedsearch.energy.frontier import FrequencyPlan, Frontier, LowerBound
from schedsearch.energy.graph import EnergyError
from schedsearch.energy.limits.switching import changes_per_iteration, num_clock_changes
from schedsearch.energy.simulation import operating_points, simulate_at_clocks
from schedsearch.schedule import Schedule

FREQUENCY_COLUMNS = ("device", "position", "block", "micro_batch", "clock_mhz", "start_ms", "time_ms")
"""Columns of `frequencies_csv`."""

FRONTIER_COLUMNS = (
    "time_ms",
    "energy_mj",
    "lower_bound_mj",
    "gap",
    "saving",
    "clock_changes",
    "changes_per_iteration",
    "saving_until_ms",
    "only_next_to_straggler",
)
"""Columns of `frontier_csv`."""

_INSTRUCTION = {Kind.F: "forward", Kind.B: "backward"}


def frequencies_csv(schedule: Schedule, profile: Profile, plan: FrequencyPlan) -> str:
    """Return a plan as CSV: a row for each block on each of its devices, in the order in which it runs.

    Returns:
        The columns `FREQUENCY_COLUMNS`: device and position from 0, clocks in MHz, times in milliseconds from
        the begin of the iteration; ``config`` where blocks have configurations, and ``mode`` where some block
        runs in another mode than its first.
    """
    points = operating_points(schedule, profile, plan.clock_mhz)
    has_configs = any(point.config for point in points.values())
    has_modes = any(schedule.mode(*instance) for instance in points)
    start_ms = simulate_at_clocks(schedule, profile, plan.clock_mhz).start_ms
    return csv_text(
        FREQUENCY_COLUMNS + ("config",) * has_configs + ("mode",) * has_modes,
        (
            (
                device,
                position,
                *instance,
                points[instance].clock_mhz,
                start_ms[instance],
                points[instance].time_ms,
                *(points[instance].config,) * has_configs,
                *(schedule.mode(*instance),) * has_modes,
            )
            for device in range(schedule.placement.num_devices)
            for position, instance in enumerate(schedule.order(device))
        ),
    )


def frontier_csv(schedule: Schedule, frontier: Frontier) -> str:
    """Return a frontier as CSV: a row for each plan by increasing time, those for stragglers included.

    Returns:
        The columns `FRONTIER_COLUMNS`: energy of all devices over the plan's own time; gap above the lower
        bound, empty where that is not above 0; share saved against all clocks at maximum over an equal time;
        changes of clock of all devices within an iteration, and with those to the next one's first clocks;
        until when that saving is counted, waiting included; ``yes`` for a plan that pays only next to a
        straggler and so is not on the frontier.
    """
    alone = {id(plan) for plan in frontier.without_straggler}
    return csv_text(
        FRONTIER_COLUMNS,
        (
            (
                plan.time_ms,
                plan.energy_mj,
                plan.lower_bound_mj,
                plan.gap if plan.lower_bound_mj > 0 else "",
                frontier.saving(plan),
                sum(num_clock_changes(schedule, plan.clock_mhz)),
                sum(changes_per_iteration(schedule, plan.clock_mhz)),
                max(plan.time_ms, frontier.all_maximum.time_ms),
                "no" if id(plan) in alone else "yes",
            )
            for plan in frontier.plans
        ),
    )


def zeus_stages(placement: Placement) -> tuple[int, ...]:
    """Return the device of each stage, first stage first, of a placement that Zeus can run.

    Raises:
        EnergyError: A block is no forward or backward, or a device does not run exactly one of each.

    >>> from placements.shapes import v_shape
    >>> zeus_stages(v_shape(3))
    (0, 1, 2)
    """
    for block in placement.blocks:
        if block.kind not in _INSTRUCTION or len(block.devices) > 1:
            what = "runs on several devices" if len(block.devices) > 1 else f"is of kind {block.kind.value}"
            raise EnergyError(
                f"export: zeus knows one forward and one backward on each device, but {block.name} of "
                f"{placement.name} {what}; use energy.export=null and the CSV files"
            )
    for device in range(placement.num_devices):
        kinds = sorted(block.kind.value for block in placement.on(device))
        if kinds != ["B", "F"]:
            names = ", ".join(block.name for block in placement.on(device)) or "nothing"
            raise EnergyError(
                f"export: zeus knows one forward and one backward on each device, but device {device} of "
                f"{placement.name} runs {names}; use energy.export=null and the CSV files"
            )
    return tuple(block.devices[0] for block in placement.topological_order if block.kind is Kind.F)


def relaxed_csv(relaxed: LowerBound) -> str:
    """Return the breakpoints of the relaxed frontier, shortest iteration first; straight lines between them.

    Columns: ``time_ms``; ``energy_mj``, the least energy of an iteration of that length, waiting included,
    if blocks could take any time between those of their clocks.
    """
    energy_mj = relaxed.effective_mj + relaxed.waiting_w * relaxed.time_ms
    rows = zip(relaxed.time_ms.tolist(), energy_mj.tolist(), strict=True)
    return "time_ms,energy_mj\n" + "".join(f"{time!r},{energy!r}\n" for time, energy in rows)


def zeus_files(schedule: Schedule, frontier: Frontier) -> Iterator[tuple[str, str]]:
    """Yield name and text of a file for each plan, as Zeus's server reads it, slowest plan first.

    The slowest is number 0, as from Perseus, which begins there (Perseus, Sec. 4.2, Alg. 1). The comments
    give time in seconds and energy in joules, without and with waiting ("P2P").

    Raises:
        EnergyError: The placement has no such form; see `zeus_stages`.
    """
    stages = zeus_stages(schedule.placement)
    waiting_w = frontier.waiting_w
    before_j: float | None = None
    for number, plan in enumerate(reversed(frontier.plans)):
        effective_j = (plan.energy_mj - waiting_w * plan.time_ms) / 1e3
        change_j = 0.0 if before_j is None else effective_j - before_j
        before_j = effective_j
        rows = [f"{_instructions(schedule, plan, device)!r},\n" for device in stages]
        comments = (
            f"cost change: {change_j!r}",
            f"total cost: {effective_j!r}",
            f"total cost with P2P: {plan.energy_mj / 1e3!r}",
            f"total time: {plan.time_ms / 1e3!r}",
        )
        lines = "".join(f"# Iteration {number} {comment}\n" for comment in comments)
        yield f"freqs_pipeline_{number:05d}.py", f"[\n{''.join(rows)}]\n{lines}"


def _instructions(schedule: Schedule, plan: FrequencyPlan, device: int) -> list[tuple[str, int]]:
    by_name = schedule.placement.by_name
    return [
        (_INSTRUCTION[by_name[name].kind], plan.clock_mhz[name][micro_batch])
        for name, micro_batch in schedule.order(device)
    ]
