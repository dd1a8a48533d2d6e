"""Savings next to stragglers of several slowdowns, by the frontier and by the baselines, as one table.

All is over an equal time, the straggler's, against all clocks at maximum (Perseus, Sec. 6.2, Tables 3 and 4).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from experiments.frontier.results import EnergyResult
from experiments.search.results import SearchStepResult
from placements.forms.texts import csv_text
from schedsearch.comparison.rows import compared
from schedsearch.energy import FrequencyPlan, all_maximum_clocks, simulate_at_clocks
from schedsearch.energy.frontier import TIME_TOLERANCE

SLOWDOWNS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5)
"""T' of the straggler over the time at the highest clocks; 1 is none."""


def savings_rows(tuned: EnergyResult) -> Iterator[tuple[float | None, ...]]:
    """Yield a row for each slowdown; None where no plan ends in time, or no bound is known.

    The columns are those of `columns`, without the name of what is compared with; savings are shares.
    """
    frontier = tuned.frontier
    for slowdown in SLOWDOWNS:
        deadline_ms = slowdown * frontier.all_maximum.time_ms
        all_maximum_mj = frontier.energy_next_to(frontier.all_maximum, deadline_ms)
        at_most = None if frontier.relaxed is None else 1 - frontier.relaxed.at(deadline_ms) / all_maximum_mj
        groups = (frontier.plans, *tuned.baselines.values())
        saved = (_saving(tuned, plans, deadline_ms, all_maximum_mj) for plans in groups)
        yield (slowdown, deadline_ms, all_maximum_mj, at_most, *saved)


def columns(tuned: EnergyResult) -> list[str]:
    """Return the names of the columns."""
    return ["slowdown", "deadline_ms", "saved_against_mj", "at_most", "frontier", *tuned.baselines]


def savings_csv(tuned: EnergyResult) -> str:
    """Return the table as CSV."""
    rows = (["all_maximum", *row] for row in savings_rows(tuned))
    return csv_text(["saved_against", *columns(tuned)], rows)


def describe_savings(tuned: EnergyResult) -> list[str]:
    """Return the table as lines of text, savings in percent."""
    names = [name for name in columns(tuned) if name not in ("deadline_ms", "saved_against_mj")]
    lines = [
        "Energy saved (%) next to a straggler, compared with all clocks at maximum;",
        "waiting for the straggler is counted, and no plan saves more than at_most",
    ]
    table = [names]
    for slowdown, _, _, *savings in savings_rows(tuned):
        assert slowdown is not None
        table.append([f"{slowdown:.2f}", *("-" if each is None else f"{100 * each:.2f}" for each in savings)])
    widths = [max(len(name), 8) for name in names]
    room = shutil.get_terminal_size((100, 24)).columns
    fitting = [width for i, width in enumerate(widths) if sum(widths[: i + 1]) + 2 * i <= room]
    lines += ["  ".join(map(str.rjust, row, fitting)) for row in table]
    if left_out := names[len(fitting) :]:
        lines.append(f"no room here for {', '.join(left_out)}; see savings.csv")
    return lines


def beside_hand_made(found: SearchStepResult, tuned: EnergyResult) -> str:
    """Return time and energy of the chosen plan beside the best by hand with all clocks at maximum."""
    name, best = next(iter(found.by_hand.items()))
    maximum = simulate_at_clocks(best, tuned.profile, all_maximum_clocks(best, tuned.profile))
    time = compared(tuned.plan.time_ms, maximum.time_ms)
    energy = compared(tuned.plan.energy_mj, maximum.energy_mj, "energy")
    return (
        f"{time} {name}, the best by hand that fits, with all clocks at maximum ({maximum.time_ms:.6g} ms), "
        f"and {energy} it ({maximum.energy_mj / 1e3:.6g} J), without waiting"
    )


def _saving(
    tuned: EnergyResult, plans: tuple[FrequencyPlan, ...], deadline_ms: float, all_maximum_mj: float
) -> float | None:
    """Return the saving of the best of some plans until a deadline; None where all of them are later."""
    in_time = [plan for plan in plans if plan.time_ms <= deadline_ms * (1 + TIME_TOLERANCE)]
    if not in_time:
        return None
    min_mj = min(tuned.frontier.energy_next_to(plan, deadline_ms) for plan in in_time)
    return 1 - min_mj / all_maximum_mj
