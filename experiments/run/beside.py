"""1F1B and the best schedule by hand beside the schedule that was found, at the same costs.

Each needs memory of its own, and one that does not fit is none of them.

All energies are until the same moment, the end of the slowest iteration: a faster one waits, or runs at lower
clocks.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from experiments.config.options import OptionError
from experiments.frontier.results import EnergyResult
from experiments.search.kinds.gpt import GptPlacement
from experiments.search.kinds.kind import PlacementKind
from experiments.search.kinds.stages import StagesPlacement
from experiments.search.problem import SearchProblem
from experiments.search.results import SearchStepResult
from placements import Kind, Placement
from placements.forms.texts import text_columns
from schedsearch.baselines import NEEDS, UnsuitablePlacementError, applicable, one_f_one_b
from schedsearch.comparison.compare import compare
from schedsearch.comparison.course import quality
from schedsearch.comparison.rows import WHOLE, compared
from schedsearch.core.answer import proved_text
from schedsearch.energy import compute_frontier
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.schedule import Schedule
from schedsearch.validate import InvalidScheduleError, validate

_SEARCHED = "searched"
"""Name of the schedule that was found."""

_TITLES = {"one_f_one_b": "1F1B", "interleaved_one_f_one_b": "interleaved 1F1B"}
"""Schedules that always have a row where they fit, with their titles there."""


@dataclass(frozen=True)
class BesideRow:
    """One schedule of the table.

    Attributes:
        name: Name of the schedule.
        schedule: None where it cannot be run; then `note` says why.
        note: Why there is no schedule, or what was cut and assumed for it.
        until_ms: End of the slowest iteration of the table.
        max_clocks_j: Energy with all clocks at maximum, waiting until then; None where the costs of its
            blocks are not known.
        best_clocks_j: The same with the clocks that need least energy until then.
        is_run: Whether it is run in place of the searched one, since it needs less energy at the deadline.
        is_best_by_hand: Whether it is the shortest of those made by hand; of equally long ones, the one that
            needs least memory, and then least energy.
    """

    name: str
    schedule: Schedule | None = None
    note: str = ""
    until_ms: float = math.nan
    max_clocks_j: float | None = None
    best_clocks_j: float | None = None
    is_run: bool = False
    is_best_by_hand: bool = False

    @property
    def title(self) -> str:
        """The name, and a mark on the best by hand."""
        return f"{self.name}, best by hand" if self.is_best_by_hand else self.name

    @property
    def time_ms(self) -> float:
        """Length of the iteration at maximum clocks, in ms."""
        assert self.schedule is not None
        return self.schedule.placement.ms(self.schedule.makespan)


def rows_beside(
    kind: PlacementKind, problem: SearchProblem, solution: SearchStepResult, tuned: EnergyResult | None
) -> tuple[BesideRow, ...]:
    """Return rows for 1F1B, also interleaved, the best schedule by hand and the searched one.

    They are empty where none is made by hand. The one that is run comes last where it was chosen by its
    energy and takes longer.
    """
    if solution.searched is None or solution.searched.schedule is None:  # made by hand itself
        return ()
    by_hand, notes = _made_by_hand(kind, problem, solution)
    if not by_hand:
        return ()
    least = min(map(quality, by_hand.values()))
    best_names = (name for name in by_hand if name not in _TITLES and quality(by_hand[name]) == least)
    made = [
        BesideRow(_TITLES.get(name, name), by_hand.get(name), notes.get(name, ""))
        for name in (*_TITLES, *best_names)
        if name in by_hand or name == "one_f_one_b"
    ]
    cut = "; ".join(kind.placed().notes) if isinstance(kind, StagesPlacement) else ""
    ours = [BesideRow(_SEARCHED, solution.schedule, cut)]
    if solution.selection is not None and solution.schedule.makespan > solution.searched.schedule.makespan:
        origin = solution.selection.origin_of(solution.selection.chosen.best)
        run = BesideRow(f"run ({origin})", solution.schedule, is_run=True)
        ours = [BesideRow(_SEARCHED, solution.searched.schedule, cut), run]
    rows = list(_with_energies(problem, [*made, *ours], solution, tuned))
    ties = [row for row in rows[: len(made)] if row.schedule and quality(row.schedule) == least]
    best = min(ties, key=lambda row: math.inf if row.best_clocks_j is None else row.best_clocks_j)
    others = [row for row in ties if row is not best and row.name not in _TITLES.values()]
    return tuple(replace(row, is_best_by_hand=row is best) for row in rows if row not in others)


def _made_by_hand(
    kind: PlacementKind, problem: SearchProblem, solution: SearchStepResult
) -> tuple[dict[str, Schedule], dict[str, str]]:
    """Return the schedules by hand that fit, on any shape of the same model, and notes on some.

    Of 1F1B that is what it lacks, where it does not fit. Where micro-batches differ or blocks have modes, a
    schedule by hand has the best of the ways in which people number micro-batches and choose modes.
    """
    number = solution.schedule.num_micro_batches
    if isinstance(kind, StagesPlacement):
        samples = number * kind.placed().num_samples
        rows = compare(kind.stages, list(NEEDS), samples, num_chunks=kind.num_chunks).rows
        fitting = {row.schedule: row.solution for row in rows if row.solution}
        return fitting, {row.schedule: row.note for row in rows}
    if problem.batch is not None or not solution.placement.is_plain:
        by_hand: dict[str, Schedule] = {}
        for name, schedule in solution.by_hand.items():  # the best first, in several ways to number or to run
            by_hand.setdefault(name.partition(",")[0], schedule)
        note = "does not fit these micro-batches or modes, or their memory"
        return by_hand, {} if "one_f_one_b" in by_hand else {"one_f_one_b": note}
    by_hand = applicable(solution.placement, number)
    try:
        chain = _chain_of(kind, problem, number)
        by_hand["one_f_one_b"] = validate(one_f_one_b(chain, number))
    except InvalidScheduleError as error:
        return by_hand, {"one_f_one_b": error.reason}
    except (OptionError, UnsuitablePlacementError) as error:
        return by_hand, {"one_f_one_b": str(error)}
    return by_hand, {}


def _chain_of(kind: PlacementKind, problem: SearchProblem, num_micro_batches: int) -> Placement:
    """Return the same model with one stage on each device: a GPT's V-shape, else the placement itself."""
    if not isinstance(kind, GptPlacement):
        return problem.placement
    chain = replace(kind, arrangement="v_shape").build(problem.gpu, num_micro_batches, None).placement
    return replace(chain, memory=problem.placement.memory) if problem.is_memory_given else chain


def _with_energies(
    problem: SearchProblem, rows: Sequence[BesideRow], solution: SearchStepResult, tuned: EnergyResult | None
) -> Iterator[BesideRow]:
    until_ms = max(row.time_ms for row in rows if row.schedule is not None)
    for row in rows:
        is_own = row.is_run or row.name == _SEARCHED
        if tuned is None or row.schedule is None or not (is_own or solution.profile is None):
            yield row
            continue
        frontier = tuned.frontier
        if row.schedule is not solution.schedule:
            profile = problem.profile_for(row.schedule.placement, solution.profile if is_own else None)
            frontier = compute_frontier(row.schedule, profile, 2, until_ms)
        plans = frontier.all_maximum, frontier.at(until_ms)
        maximum, best = (frontier.energy_next_to(plan, until_ms) / 1e3 for plan in plans)
        yield replace(row, until_ms=until_ms, max_clocks_j=maximum, best_clocks_j=best)


def beside_table(rows: Sequence[BesideRow]) -> tuple[list[list[str]], list[str]]:
    """Return the table, its heads first, and its notes; both are empty where there is no other schedule."""
    ran = [row for row in rows if row.schedule is not None]
    if len(ran) < 2:
        return [], []
    table = [["", "iteration", "bubble", "peak memory", "energy*"], *map(_cells, rows)]
    if all(row.best_clocks_j is None for row in ran):
        table = [cells[:-1] for cells in table]
    notes = [f"{row.title}: {row.note}" for row in rows if row.note]
    if ran[0].max_clocks_j is not None:
        best = f"* at the clocks of least energy, then waiting until {ran[0].until_ms:,.6g} ms"
        notes.append(f"{best}; {ran[0].title} with all clocks at maximum: {ran[0].max_clocks_j:,.0f} J")
    return table, notes


def beside_lines(table: Sequence[Sequence[str]], notes: Sequence[str]) -> list[str]:
    """Return the table and its notes as lines for a terminal."""
    wrapped = [line for note in notes for line in textwrap.wrap(note, 79)]
    return [*text_columns(table), *wrapped] if table else []


def _cells(row: BesideRow) -> list[str]:
    if row.schedule is None:
        return [row.title, "-", "-", "-", "-"]
    return [
        row.title,
        f"{row.time_ms:,.6g} ms",
        f"{bubble_rate(row.schedule):.1%}",
        _peak(row.schedule),
        "-" if row.best_clocks_j is None else f"{row.best_clocks_j:,.0f} J",
    ]


def in_words(rows: Sequence[BesideRow], proved: str) -> str:
    """Return in words how the searched schedule stands to the best by hand and to 1F1B, and its proof."""
    *others, searched = (row for row in rows if not row.is_run)
    ran = sorted((row for row in others if row.schedule), key=lambda row: not row.is_best_by_hand)
    times = " and ".join(_compared(searched, row) for row in ran if row in (ran[0], others[0]))
    if searched.schedule is None:
        return ""
    if not _is_split(searched) and any(map(_is_split, ran)) and proved != proved_text():
        proved += WHOLE
    needs = f"{searched.time_ms:,.6g} ms ({_peak(searched.schedule)})"
    text = f"The searched schedule takes {needs}, {times} ({proved})."
    best = ran[0]
    if searched.best_clocks_j is not None and best.max_clocks_j is not None:
        less = compared(searched.best_clocks_j, best.max_clocks_j, "energy")
        text += f" Until the slowest of these ends, at {searched.until_ms:,.6g} ms, it needs {less} "
        text += f"{best.name} with all clocks at maximum."
    for row in (row for row in rows if row.is_run):
        text += f" Another order, of {row.time_ms:,.6g} ms, is run: it needs less energy until the deadline."
    return text


def _compared(searched: BesideRow, other: BesideRow) -> str:
    assert searched.schedule is not None and other.schedule is not None
    shape = other.schedule.placement.name
    where = [shape] * (shape != searched.schedule.placement.name)
    where += ["split backwards"] * (_is_split(other) and not _is_split(searched))
    inside = ", ".join([_peak(other.schedule), *where])
    return f"{compared(searched.time_ms, other.time_ms)} {other.title} ({inside})"


def _is_split(row: BesideRow) -> bool:
    return row.schedule is not None and any(b.kind is Kind.W for b in row.schedule.placement.blocks)


def _peak(schedule: Schedule) -> str:
    peak = int(peak_memory(schedule).max())
    peak_gib = schedule.placement.mib(peak) / 1024
    return f"{peak} units" if math.isnan(peak_gib) else f"{peak_gib:,.1f} GiB"
