"""The search as a step of every command: its schedule found, written to files and described."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from experiments.config.command import Interrupted
from experiments.config.options import OptionError
from experiments.report.html_report import Fact
from experiments.report.result import Result, Table
from experiments.search.options import SearchCommandOptions
from experiments.search.problem import SearchProblem
from experiments.search.profile_reading import CostSource
from experiments.search.results import SearchStepResult
from experiments.search.scenario_step import read_scenarios, robust_order
from experiments.search.schedule_finding import find_schedule
from experiments.search.trainer_export import trainer_files, trainer_job
from placements import Placement
from placements.forms.texts import text_columns
from placements.placement_file import placement_to_yaml
from placements.trainers.files import TRAINERS
from placements.trainers.galvatron import galvatron_fields
from runtime.torch_pipelining.csv import NoTorchFormError, in_loss_order, stage_of, torch_order
from runtime.torch_pipelining.streams import left_out, stream_table
from schedsearch.baselines import HAND_MADE, applicable
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.comparison.course import quality
from schedsearch.comparison.rows import compared
from schedsearch.core.answer import Answer, Status
from schedsearch.core.shared_limits import SharedLimits
from schedsearch.device_span import device_spans
from schedsearch.figures.perfetto import write_perfetto
from schedsearch.metrics import bubble_rate, peak_host_memory, peak_memory, steady_period
from schedsearch.picture import fitted
from schedsearch.robust.robust_search import ScenarioRow
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.unequal.starts import by_hand

log = logging.getLogger(__name__)


def search_and_save(
    options: SearchCommandOptions, problem: SearchProblem, directory: Path
) -> SearchStepResult:
    """Find the placement's schedule as a step of a command; write and print it.

    Raises:
        OptionError: The placement does not have the form to export, or a scenario is wrong.
        Interrupted: The search was interrupted from the keyboard; the files are written all the same.
    """
    solution, result = search(options, problem)
    result.write(directory)
    for line in (*result.sentences, f"schedule in {directory / 'schedule.json'}"):
        log.info("%s", line)
    if result.interrupted:
        raise Interrupted(f"interrupted; {result.interrupted} {directory / 'schedule.json'}")
    return solution


def search(options: SearchCommandOptions, problem: SearchProblem) -> tuple[SearchStepResult, Result]:
    """Find the placement's schedule; return it, and its files and lines.

    Of a plan, the plan as it is carried out is among the files.

    Raises:
        OptionError: The placement does not have the form to export, or a scenario is wrong.
    """
    placement, costs = problem.placement, problem.costs
    check_search_export(options, problem)
    scenarios = read_scenarios(options, placement)
    limits = SharedLimits.of(vars(options.search), searches=2)
    tables: dict[str, Table] = {}
    with INTERRUPTS.answered() as ending:
        share = limits.share() if scenarios else {}
        chosen = replace(options, search=replace(options.search, **share))
        schedule, result, progress = find_schedule(chosen, placement, problem.batch)
    if scenarios and not ending.interrupted:
        if result is not None:
            limits.spend(result.work, result.seconds)
        robust = robust_order(options, scenarios, schedule, limits)
        tables["scenarios"] = Table(ScenarioRow, robust.rows)
        # What the search proved stays true: it is of the placement's own times.
        schedule, result = robust.schedule, result and replace(result, schedule=robust.schedule)
    files: dict[str, object] = {"placement.yaml": placement_to_yaml(placement, costs.of_times())}
    if problem.built.planned:
        files["galvatron_config.json"] = galvatron_fields(problem.built.planned)
    made = {} if result is None else made_by_hand(problem, schedule.num_micro_batches)
    solution = SearchStepResult(
        *(placement, problem.profile, schedule, result, costs, problem.memory_unit),
        progress=progress,
        by_hand=made,
        options=options.search,
    )
    if "perfetto" in options.search.exports:
        rows = {"searched" if result else "by hand": schedule, **dict([*made.items()][:1])}
        files["trace.json"] = partial(write_perfetto, rows=rows, keys=costs.to_dict())
    for_trainers, lines = trainer_files(options, problem, schedule)
    sentences = [str(costs), describe(schedule, result), *beside_hand_made(schedule, made)]
    return solution, Result(
        figures=solution.figures,
        tables=tables,
        files=files | schedule_files(schedule, result, costs, options.search.exports) | for_trainers,
        sentences=[*sentences, *lines],
        interrupted="the best schedule found so far is in" * ending.interrupted,
    )


def check_search_export(options: SearchCommandOptions, problem: SearchProblem) -> None:
    """Reject before the search a form that the placement does not have."""
    exports, placement = options.search.exports, problem.placement
    if {*TRAINERS} & {*exports}:
        trainer_job(options, problem)
    if "streams" in exports and placement.is_plain:
        raise OptionError(
            f"search.export: {placement.name} has neither streams nor modes; use torch, or leave it out"
        )
    if "torch" in exports:
        try:
            stage_of(placement)
        except NoTorchFormError as error:
            raise OptionError(f"search.export: {error}") from None


def schedule_files(
    schedule: Schedule, result: Answer | None, costs: CostSource, exports: Sequence[str] = ()
) -> dict[str, object]:
    """Return ``schedule.json``; if asked for, ``schedule.csv`` for torch, and ``streams.csv`` beside it.

    The latter is there for a schedule with modes or streams; beside a table for torch with its numbers of
    micro-batches.
    """
    files: dict[str, object] = {"schedule.json": schedule_to_dict(schedule, result) | costs.to_dict()}
    if "torch" in exports:
        order, schedule = torch_order(schedule), in_loss_order(schedule)
        files["schedule.csv"] = str(order)
        if lost := left_out(schedule, order):
            log.info("schedule.csv: %s; streams.csv has them", lost)
    if {"torch", "streams"} & {*exports} and not schedule.placement.is_plain:
        files["streams.csv"] = stream_table(schedule)
    return files


def save_schedule(
    schedule: Schedule,
    result: Answer | None,
    options: SearchCommandOptions,
    problem: SearchProblem,
    directory: Path,
) -> None:
    """Write the files of a schedule."""
    files = schedule_files(schedule, result, problem.costs, options.search.exports)
    Result(files=files | trainer_files(options, problem, schedule)[0]).write(directory)


def describe(schedule: Schedule, result: Answer | None) -> str:
    """Return the schedule as a picture that fits the terminal, and its figures, a line each."""
    columns = shutil.get_terminal_size((100, 24)).columns
    placement, repetend = schedule.placement, result.repetend if result else None
    title = f"{placement.name}, {micro_batches_in_words(placement, schedule.num_micro_batches)}"
    grid = fitted(schedule, columns, repetend)
    return "\n".join([title, grid, *(f"{name:<12}{text}" for name, text in figures(schedule, result))])


def made_by_hand(problem: SearchProblem, number: int) -> dict[str, Schedule]:
    """Return the schedules made by hand for a placement that fit its memory, by name, the best first."""
    placement, batch = problem.placement, problem.batch
    schedules: dict[str, Schedule | None]
    if batch is not None:
        schedules = by_hand(batch, HAND_MADE)
    elif placement.is_plain:
        schedules = {**applicable(placement, number)}
    else:
        schedules = dict(with_chosen_modes(placement, number, dict(HAND_MADE)))
    fitting = ((name, schedule) for name, schedule in schedules.items() if schedule is not None)
    return dict(sorted(fitting, key=lambda named: quality(named[1])))


def beside_hand_made(schedule: Schedule, made: Mapping[str, Schedule]) -> Iterator[str]:
    """Yield the lines of a table of a schedule and those made by hand, and how it stands to the best."""
    if not made:
        return
    table = [["beside those by hand", "makespan", "bubble", "peak memory"]]
    for name, row in [("this one", schedule), *list(made.items())[:_MAX_BY_HAND]]:
        memory = peak(row).removesuffix(" units of the placement")
        table.append([name, in_ms(row.placement, row.makespan), f"{bubble_rate(row):.1%}", memory])
    yield from text_columns(table)
    yield f"the schedule takes {beside_best_by_hand(schedule, made)}"


_MAX_BY_HAND = 10
"""Schedules by hand in the table, the best ones."""


def beside_best_by_hand(schedule: Schedule, made: Mapping[str, Schedule]) -> str:
    """Return how a schedule stands to the best of those made by hand, with the memory that this one needs."""
    name, best = next(iter(made.items()))
    needs = f"{in_ms(best.placement, best.makespan)} and {peak(best)}"
    return f"{compared(schedule.makespan, best.makespan)} {name}, the best by hand that fits ({needs})"


def figures(schedule: Schedule, result: Answer | None) -> Iterator[tuple[str, str]]:
    """Yield name and value of each figure of a schedule as text, with its proof."""
    for fact in schedule_facts(schedule, result):
        yield fact.label, fact.value + (f": {fact.note}" if fact.note else "")


def schedule_facts(schedule: Schedule, result: Answer | None) -> Iterator[Fact]:
    """Yield the facts of a schedule, for a terminal and a page."""
    placement, repetend = schedule.placement, result.repetend if result else None
    word = micro_batch_word(placement)

    def ms(ticks: float) -> str:
        return in_ms(placement, ticks)

    def proof(is_least: bool, bound: float) -> str:
        return f"{'proved' if is_least else 'not proved'} (bound {ms(bound)})"

    if result is not None and repetend is not None:
        is_least = result.status is Status.OPTIMAL
        note = f"{proof(is_least, result.period_bound)}, steady bubble {repetend.bubble_rate:.1%}"
        yield Fact("repetend", f"{ms(repetend.period_per_micro_batch)} per {word}", note, is_least)
        yield Fact("span", f"{ms(repetend.span)} (bound {ms(result.span_bound)})")
    steady = steady_period(schedule)
    middle = "none, as no pattern repeats" if steady is None else f"{ms(steady)} per {word} in its middle"
    yield Fact("period", middle)
    is_least = result is not None and schedule.makespan <= result.makespan_bound
    note = proof(is_least, result.makespan_bound) if result else ""
    yield Fact("makespan", ms(schedule.makespan), note, is_least or None)
    span = ms(int(device_spans(schedule).max()))
    span += f" (bound {ms(result.device_span_bound)})" if result else ""
    yield Fact("device span", f"{span}, from a device's first start to its last end")
    yield Fact("bubble", f"{bubble_rate(schedule):.1%} of makespan times devices")
    if not all(decision.is_of_micro_batches for decision in placement.decisions):
        yield Fact("modes", _modes_in_words(schedule))
    yield Fact("peak memory", memories(placement, peak_memory(schedule).tolist(), placement.memory))
    if any(hosts := peak_host_memory(schedule).tolist()):
        yield Fact("host memory", memories(placement, hosts, placement.host_memory))
    if result is not None:
        yield Fact("search", f"{result.seconds:.2f} s")
        if result.is_cut:
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


def memories(placement: Placement, peaks: Sequence[int], capacity: Sequence[int] | None = None) -> str:
    """Return memory of each device and its capacity as text, in whole MiB if the unit is known."""
    mib = placement.memory_unit_mib
    held, most = (listed([round(units * (mib or 1)) for units in row or (0,)]) for row in (peaks, capacity))
    return f"{held}{f' of {most}' * bool(capacity)} {'MiB' if mib else 'units of the placement'}"


def peak(schedule: Schedule) -> str:
    """Return the peak memory of the fullest device with its unit."""
    return memories(schedule.placement, [int(peak_memory(schedule).max())])


def listed(units: Sequence[int]) -> str:
    """Return one number where all devices have the same, else all, or of many devices the range."""
    if len(units) > 16 and len(set(units)) > 1:
        return f"{min(units):,} to {max(units):,}"
    return ", ".join(f"{number:,}" for number in (units[:1] if len(set(units)) == 1 else units))
