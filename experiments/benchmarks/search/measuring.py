"""What a case measures: the steady state, the whole schedule, or our search beside Tessel's own.

CPU seconds are those of this process with all its threads and children; loading a solver is not among them.
A search that must prove something gets more wall-clock time than it may take CPU seconds, since the machine
may have other work; one that may end without a proof gets as much, and ends by that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.timing import CpuClock, timed
from placements import Placement
from schedsearch.baselines import applicable
from schedsearch.modulo.result import SearchProgress, SearchResult, Status
from schedsearch.modulo.search import search
from schedsearch.tessel import tessel

_PATIENCE = 2.0
"""Wall-clock seconds that a proof gets for each CPU second that it may take."""


def search_timed(placement: Placement, num_micro_batches: int, **options: Any) -> tuple[SearchResult, float]:
    """Return the result of a search and its CPU seconds.

    Raises:
        KeyboardInterrupt: The search was interrupted.
    """
    result, took_s = timed(lambda: search(placement, num_micro_batches, **options))
    if result.interrupted:
        raise KeyboardInterrupt
    return result, took_s


def case_result(
    result: SearchResult, took_s: float, wrong: Mapping[str, bool], note: str = "", *, is_whole: bool = True
) -> CaseResult:
    """Return what a search reached as a row; with the whole schedule, or with the period alone."""
    return CaseResult(
        took_s,
        true_of(wrong),
        result.status,
        _period(result),
        result.period_bound,
        _makespan(result) if is_whole else None,
        result.makespan_bound if is_whole else None,
        note,
    )


def proof_and_schedule_timed(
    placement: Placement, num_micro_batches: int
) -> tuple[tuple[SearchResult, float], tuple[SearchResult, float]]:
    """Return a proved period and a schedule, to compare with Tessel's, each with its CPU seconds.

    Both have one micro-batch per repetend; the schedule is made shorter for a second more than that takes.
    """
    options: dict[str, Any] = {"micro_batches_per_repetend": 1, "solver": "z3"}
    proof, took_s = search_timed(
        placement, num_micro_batches, objectives=("period",), time_limit_s=60.0, **options
    )
    options["time_limit_s"] = proof.seconds + 1.0
    return (proof, took_s), search_timed(placement, num_micro_batches, **options)


def steady(
    placement: Placement,
    *,
    cpu_s: float,
    period: float | None = None,
    at_most: float | None = None,
    optimal: bool = True,
    gap_below: float | None = None,
    max_micro_batches: int = 1,
    solver: str = "portfolio",
) -> CaseResult:
    """Search the least period, and hold it against what is wanted.

    Args:
        placement: What runs where, with its memory.
        cpu_s: CPU seconds that it may take to prove the period; wall-clock seconds where it need not.
        period: Ticks per micro-batch that it must have; None for any.
        at_most: Ticks per micro-batch that it must not exceed; None for any.
        optimal: Whether it must be proved.
        gap_below: Where it is not proved, the gap must be a lesser share of the bound; None for any gap.
        max_micro_batches: Per repetend.
        solver: A key of `schedsearch.solver.portfolio.SOLVERS`.
    """
    result, took_s = search_timed(
        placement,
        2 * placement.num_devices,
        max_micro_batches_per_repetend=max_micro_batches,
        micro_batches_per_repetend=1 if max_micro_batches == 1 else None,
        objectives=("period",),
        solver=solver,
        time_limit_s=_PATIENCE * cpu_s if optimal else cpu_s,
    )
    found = _period(result)
    wrong = {
        "not OPTIMAL": optimal and result.status is not Status.OPTIMAL,
        f"gap {result.gap:.1%}": gap_below is not None
        and result.status is not Status.OPTIMAL
        and result.gap >= gap_below,
        "no repetend": found is None,
        f"period is not {period}": found is not None and period is not None and abs(found - period) > 1e-9,
        f"period above {at_most}": found is not None and at_most is not None and found > at_most + 1e-9,
        f"more than {cpu_s:g} CPU s": optimal and took_s > cpu_s,
    }
    tried = ", ".join(f"u={each.micro_batches}: {each.period or '-'} ({each.bound})" for each in result.tried)
    return case_result(result, took_s, wrong, tried if max_micro_batches > 1 else "", is_whole=False)


def sweep(rows: Mapping[str, tuple[Placement, float | None]], *, cpu_s: float, each_s: float) -> CaseResult:
    """Search the least period of several placements, and hold all of them against what is wanted.

    Each has a name, and its period in ticks where that is known. All of them may take ``cpu_s`` CPU seconds,
    and one ``each_s``.
    """
    total_s, missed, notes = 0.0, [], []
    for name, (placement, period) in rows.items():
        found, took_s = timed(partial(steady, placement, cpu_s=each_s, period=period))
        total_s += took_s
        notes.append(f"{name}: {found.period:g} [{took_s:.2f} s]" if found.period else f"{name}: -")
        missed += [f"{name}: {text}" for text in found.missed]
    if total_s > cpu_s:
        missed.append(f"more than {cpu_s:g} CPU s")
    status = Status.OPTIMAL.value if not any("OPTIMAL" in text for text in missed) else ""
    return CaseResult(total_s, tuple(missed), status, note=", ".join(notes))


@dataclass(frozen=True)
class KnownMakespan:
    """The makespan in ticks of the shortest schedule known before, and whether none is shorter."""

    makespan: int
    is_optimal: bool


def finite(
    placement: Placement, num_micro_batches: int, best: KnownMakespan, *, time_limit_s: float
) -> CaseResult:
    """Search a whole schedule, and hold it against the best known and all made by hand for the same memory.

    Where the best known is not proved, it must be beaten, or proved that it cannot be.
    """
    result, took_s = search_timed(placement, num_micro_batches, time_limit_s=time_limit_s)
    hand_made = {name: each.makespan for name, each in applicable(placement, num_micro_batches).items()}
    makespan, min_by_hand = _makespan(result), min(hand_made.values(), default=None)
    ticks = math.inf if makespan is None else makespan
    proved = ticks <= result.makespan_bound
    wrong = {
        "no schedule": makespan is None,
        f"longer than the best known, {best.makespan}": best.makespan < ticks < math.inf,
        f"neither below {best.makespan} nor proved": ticks == best.makespan
        and not (best.is_optimal or proved),
        f"longer than by hand, {min_by_hand}": min_by_hand is not None and min_by_hand < ticks < math.inf,
    }
    by_hand = ", ".join(f"{name} {value}" for name, value in hand_made.items() if value == min_by_hand)
    known = f"best known {best.makespan}" + ("*" if best.is_optimal else "")
    note = f"{known}; by hand {by_hand or '-'}; {'proved' if proved else 'open'}"
    return case_result(result, took_s, wrong, note)


def against_tessel(
    placement: Placement, num_micro_batches: int, *, ratio: float, time_limit_s: float
) -> CaseResult:
    """Search as we do and as Tessel does, and compare the CPU seconds until the period is proved.

    Tessel's search must take ``ratio`` times as long; where its limit in wall-clock seconds ends it, the
    ratio is a lower bound. The note also compares the two where both make the schedule as well; ours is made
    shorter for a second.
    """
    (ours, ours_s), (whole, whole_s) = proof_and_schedule_timed(placement, num_micro_batches)
    theirs, proof_s, theirs_s = tessel_timed(placement, num_micro_batches, time_limit_s)
    last = theirs.by_in_flight[-1]
    is_through = last.repetend is not None and last.repetend.period <= last.bound
    at_least = "" if is_through else ">= "
    wrong = {
        "not OPTIMAL": ours.status is not Status.OPTIMAL,
        f"ratio below {ratio:g}": proof_s / ours_s < ratio,
    }
    note = (
        f"Tessel {at_least}{proof_s:.1f} CPU s to period {_period(theirs)}, "
        f"ratio {at_least}{proof_s / ours_s:.0f}; "
        f"with the schedule {theirs_s:.1f} CPU s, makespan {_makespan(theirs)}, "
        f"against {whole_s:.2f} CPU s, makespan {_makespan(whole)}: "
        f"ratio {at_least}{theirs_s / whole_s:.0f}"
    )
    return case_result(ours, ours_s, wrong, note, is_whole=False)


def tessel_timed(
    placement: Placement, num_micro_batches: int, time_limit_s: float
) -> tuple[SearchResult, float, float]:
    """Return Tessel's result, and the CPU seconds of its sweep over repetends and of all of it."""
    clock = CpuClock()
    sweep_s: list[float] = []

    def note(progress: SearchProgress) -> None:
        if progress.phase.startswith("completion") and not sweep_s:
            sweep_s.append(clock.seconds)

    result = tessel(placement, num_micro_batches, time_limit_s=time_limit_s, on_progress=note)
    if result.interrupted:
        raise KeyboardInterrupt
    return result, sweep_s[0] if sweep_s else clock.seconds, clock.seconds


def _period(result: SearchResult) -> float | None:
    return result.repetend.period_per_micro_batch if result.repetend is not None else None


def _makespan(result: SearchResult) -> int | None:
    return result.schedule.makespan if result.schedule is not None else None
