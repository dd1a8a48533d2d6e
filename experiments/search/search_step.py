"""The search as a step of every command: its schedule found, written to files and described."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.config.command import Interrupted
from experiments.config.options import OptionError
from experiments.report.html_report import Fact
from experiments.search.options import SearchCommandOptions
from experiments.search.problem import SearchProblem
from experiments.search.profile_reading import CostSource
from experiments.search.replica_step import check_replicas, search_replicas
from experiments.search.results import SearchStepResult
from experiments.search.scenario_step import read_scenarios, with_scenarios
from experiments.search.schedule_finding import find_schedule
from placements import Placement
from placements.forms.texts import text_columns, write_json, write_text
from placements.placement_file import placement_to_yaml
from placements.trainers.galvatron import galvatron_fields
from runtime.torch_pipelining.csv import NoTorchFormError, in_loss_order, stage_of, torch_order
from runtime.torch_pipelining.streams import left_out, stream_table
from schedsearch.baselines import HAND_MADE, applicable
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.comparison.course import quality
from schedsearch.comparison.rows import compared
from schedsearch.core.answer import Answer, SearchProgress, Status
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.device_span import device_spans
from schedsearch.metrics import bubble_rate, peak_host_memory, peak_memory, steady_period
from schedsearch.picture import fitted
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.unequal.starts import by_hand

log = logging.getLogger(__name__)


def search_and_save(
    options: SearchCommandOptions, problem: SearchProblem, directory: Path
) -> SearchStepResult:
    """Find the placement's schedule; write ``placement.yaml``, ``schedule.json`` and the exports.

    Of a plan, the plan as it is carried out is written too.

    Raises:
        OptionError: The placement does not have the form to export, or a scenario is wrong.
        Interrupted: The search was interrupted from the keyboard; both files are written all the same.
    """
    placement, costs, unit = problem.placement, problem.costs, problem.memory_unit
    check_search_export(options, placement)
    scenarios = read_scenarios(options, placement)
    result: Answer | None = None
    progress: tuple[SearchProgress, ...] = ()
    limits = SharedLimits.of(vars(options.search), searches=2)
    with INTERRUPTS.answered() as ending:
        if is_of_replicas := check_replicas(options):
            schedule = search_replicas(options, problem, directory)
        else:
            chosen = options
            if scenarios:
                chosen = replace(options, search=replace(options.search, **limits.share()))
            schedule, result, progress = find_schedule(chosen, placement, problem.batch)
    if scenarios and not ending.interrupted:
        if result is not None:
            limits.spend(result.work, result.seconds)
        schedule, result = with_scenarios(options, scenarios, schedule, result, limits, directory)
    log.info("%s", costs)
    write_text(directory / "placement.yaml", placement_to_yaml(placement, costs.of_times()))
    if problem.planned:
        write_json(directory / "galvatron_config.json", galvatron_fields(problem.planned.plan))
    save_schedule(schedule, result, costs, directory, export=options.search.export)
    log.info("%s", describe(schedule, result, unit))
    made = {} if result is None or is_of_replicas else made_by_hand(problem, schedule.num_micro_batches)
    if made:
        log.info("%s", "\n".join(beside_hand_made(schedule, made, unit)))
    log.info("schedule in %s", directory / "schedule.json")
    if ending.interrupted:
        raise Interrupted(f"interrupted; the best schedule found so far is in {directory / 'schedule.json'}")
    return SearchStepResult(placement, problem.profile, schedule, result, costs, unit, None, progress, made)


def check_search_export(options: SearchCommandOptions, placement: Placement) -> None:
    """Reject before the search a form that the placement does not have."""
    export = options.search.export
    if export == "streams" and placement.is_plain:
        raise OptionError(
            f"search.export: {placement.name} has neither streams nor modes; use torch, or leave it out"
        )
    if export == "torch":
        try:
            stage_of(placement)
        except NoTorchFormError as error:
            raise OptionError(f"search.export: {error}") from None


def save_schedule(
    schedule: Schedule,
    result: Answer | None,
    costs: CostSource,
    directory: Path,
    export: str | None = None,
) -> None:
    """Write ``schedule.json``; if asked for, ``schedule.csv`` for torch, and ``streams.csv`` beside it.

    The latter is written of a schedule with modes or streams; beside a table for torch with its numbers of
    micro-batches.
    """
    write_json(directory / "schedule.json", schedule_to_dict(schedule, result) | costs.to_dict())
    if export == "torch":
        order, schedule = torch_order(schedule), in_loss_order(schedule)
        write_text(directory / "schedule.csv", str(order))
        if lost := left_out(schedule, order):
            log.info("schedule.csv: %s; streams.csv has them", lost)
    if export is not None and not schedule.placement.is_plain:
        write_text(directory / "streams.csv", stream_table(schedule))


def describe(schedule: Schedule, result: Answer | None, memory_unit: str) -> str:
    """Return the schedule as a picture that fits the terminal, and its figures, a line each."""
    columns = shutil.get_terminal_size((100, 24)).columns
    placement, repetend = schedule.placement, result.repetend if result else None
    title = f"{placement.name}, {micro_batches_in_words(placement, schedule.num_micro_batches)}"
    grid = fitted(schedule, columns, repetend)
    return "\n".join(
        [title, grid, *(f"{name:<12}{text}" for name, text in figures(schedule, result, memory_unit))]
    )


def made_by_hand(problem: SearchProblem, number: int) -> dict[str, Schedule]:
    """Return the schedules made by hand for a placement that fit its memory, by name, the best first."""
    placement, batch = problem.placement, problem.batch
    found: dict[str, Schedule | None]
    if batch is not None:
        found = by_hand(batch, HAND_MADE)
    elif placement.is_plain:
        found = {**applicable(placement, number)}
    else:
        found = dict(with_chosen_modes(placement, number, dict(HAND_MADE)))
    fitting = ((name, schedule) for name, schedule in found.items() if schedule is not None)
    return dict(sorted(fitting, key=lambda named: quality(named[1])))


def beside_hand_made(schedule: Schedule, made: Mapping[str, Schedule], unit: str) -> Iterator[str]:
    """Yield the lines of a table of a schedule and those made by hand, and how it stands to the best."""
    rows = {"this one": schedule, **dict(list(made.items())[:_MOST_BY_HAND])}
    table = [["beside those by hand", "makespan", "bubble", "peak memory"]]
    for name, row in rows.items():
        memory = f"{int(peak_memory(row).max()):,} {unit}".strip()
        table.append([name, in_ms(row.placement, row.makespan), f"{bubble_rate(row):.1%}", memory])
    yield from text_columns(table)
    yield f"the schedule takes {beside_best_by_hand(schedule, made, unit)}"


def beside_best_by_hand(schedule: Schedule, made: Mapping[str, Schedule], unit: str) -> str:
    """Return how a schedule stands to the best of those made by hand, with the memory that this one needs."""
    name, best = next(iter(made.items()))
    time, memory = in_ms(best.placement, best.makespan), f"{int(peak_memory(best).max()):,}"
    needs = f"{time} and {memory} {unit or 'units of the placement'}"
    return f"{compared(schedule.makespan, best.makespan)} {name}, the best by hand that fits ({needs})"


_MOST_BY_HAND = 10
"""Schedules by hand in the table, the best ones."""

_PROVED = {True: "proved", False: "not proved"}
"""Whether a figure meets its bound, in words."""


def figures(schedule: Schedule, result: Answer | None, memory_unit: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each figure of a schedule as text, with its proof."""
    for fact in schedule_facts(schedule, result, memory_unit):
        yield fact.label, fact.value + (f": {fact.note}" if fact.note else "")


def schedule_facts(schedule: Schedule, result: Answer | None, memory_unit: str) -> Iterator[Fact]:
    """Yield the facts of a schedule, for a terminal and a page."""
    placement, repetend = schedule.placement, result.repetend if result else None
    if result is not None and repetend is not None:
        is_least = result.status is Status.OPTIMAL
        bound, steady_bubble = in_ms(placement, result.period_bound), f"{repetend.bubble_rate:.1%}"
        period = f"{in_ms(placement, repetend.period_per_micro_batch)} per {micro_batch_word(placement)}"
        note = f"{_PROVED[is_least]} (bound {bound}), steady bubble {steady_bubble}"
        yield Fact("repetend", period, note, is_least)
        span_bound = in_ms(placement, result.span_bound)
        yield Fact("span", f"{in_ms(placement, repetend.span)} (bound {span_bound})")
    steady, per = steady_period(schedule), f" per {micro_batch_word(placement)} in its middle"
    yield Fact("period", "none, as no pattern repeats" if steady is None else in_ms(placement, steady) + per)
    makespan, is_least = Fact("makespan", in_ms(placement, schedule.makespan)), False
    if result is not None:
        is_least = schedule.makespan <= result.makespan_bound
        note = f"{_PROVED[is_least]} (bound {in_ms(placement, result.makespan_bound)})"
        makespan = replace(makespan, note=note, good=is_least or None)
    yield makespan
    device_span = in_ms(placement, int(device_spans(schedule).max()))
    if result is not None:
        device_span += f" (bound {in_ms(placement, result.device_span_bound)})"
    yield Fact("device span", f"{device_span}, from a device's first start to its last end")
    yield Fact("bubble", f"{bubble_rate(schedule):.1%} of makespan times devices")
    if not all(decision.is_of_micro_batches for decision in placement.decisions):
        yield Fact("modes", _modes_in_words(schedule))
    yield Fact("peak memory", _peaks(peak_memory(schedule).tolist(), placement.memory, memory_unit))
    if any(hosts := peak_host_memory(schedule).tolist()):
        yield Fact("host memory", _peaks(hosts, placement.host_memory, memory_unit))
    if result is not None:
        yield Fact("search", f"{result.seconds:.2f} s")
    if result is not None and result.is_cut:
        yield Fact("cut", "by a time limit: another run may end with another schedule")


def in_ms(placement: Placement, ticks: float) -> str:
    """Return ticks as milliseconds with the unit."""
    return f"{ticks * placement.tick_ms:.6g} ms"


def micro_batches_in_words(placement: Placement, number: int) -> str:
    """Return a number of micro-batches in words: pairs where the placement has two of them at a time.

    >>> from placements.shapes import k_shape, x_shape
    >>> micro_batches_in_words(x_shape(), 3), micro_batches_in_words(k_shape(), 3)
    ('3 pairs of micro-batches', '3 micro-batches')
    """
    return f"{number} {micro_batch_word(placement, several=number != 1)}"


def micro_batch_word(placement: Placement, several: bool = False) -> str:
    """Return the word for a micro-batch of a placement: a pair where it has two of them at a time."""
    part = {block.name: block.name for block in placement.per_micro_batch.blocks}
    for block in placement.per_micro_batch.topological_order:
        for other in {part[name] for name in block.after}:
            part = {name: part[block.name] if of == other else of for name, of in part.items()}
    if len(set(part.values())) == 2:
        return "pairs of micro-batches" if several else "pair of micro-batches"
    return "micro-batches" if several else "micro-batch"


def _modes_in_words(schedule: Schedule) -> str:
    """Return how often each mode is chosen."""
    decisions = schedule.placement.decisions
    counts = Counter(
        decision.choices[number].name
        for chosen in schedule.chosen
        for decision, number in zip(decisions, chosen, strict=True)
    )
    names = dict.fromkeys(name for decision in decisions for name in decision.names)
    word = "decision" if len(decisions) == 1 else "decisions"
    chosen = ", ".join(f"{counts[name]} {name}" for name in names)
    return f"{chosen}, for {len(decisions)} {word} in each of {len(schedule.chosen)} micro-batches"


def _peaks(peaks: Sequence[int], capacity: Sequence[int] | None, unit: str) -> str:
    """Return the most that each device holds, and how much it may."""
    unit = unit or "units of the placement"
    most = f" of {_listed(capacity)}" if capacity else ""
    return f"{_listed(peaks)}{most} {unit}"


def _listed(units: Sequence[int]) -> str:
    """Return one number where all devices have the same, else all, or of many devices the range."""
    if len(units) > 16 and len(set(units)) > 1:
        return f"{min(units):,} to {max(units):,}"
    return ", ".join(f"{each:,}" for each in (units[:1] if len(set(units)) == 1 else units))
