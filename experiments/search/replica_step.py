"""One batch on several data-parallel replicas: which gets which micro-batch."""

from __future__ import annotations

from typing import NamedTuple

from experiments.config.command import Interrupted
from experiments.config.options import OptionError, require
from experiments.report.result import Result, Table
from experiments.search.options import SearchCommandOptions, SearchOptions
from experiments.search.problem import SearchProblem
from experiments.search.schedule_finding import finite_objective
from schedsearch.core.objective import Objective
from schedsearch.core.progress import SearchBar
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict
from schedsearch.unequal.micro_batches import MicroBatchError, UnequalBatch
from schedsearch.unequal.replica_work import replica_work
from schedsearch.unequal.unequal_search import replica_search


class ReplicaRow(NamedTuple):
    """A row of ``replicas.csv``: a micro-batch, and its place in the schedule of its replica."""

    replica: int
    place: int
    micro_batch: int


def check_replicas(options: SearchCommandOptions) -> None:
    """Reject options that do not go with several replicas, or not without them."""
    chosen = options.search
    if chosen.replicas is None:
        for name in ("max_micro_batches", "max_tokens"):
            limit, remedy = getattr(chosen, name), "give search.replicas, or leave it out"
            require(limit is None, f"search.{name}", limit, "used", remedy)
        return
    if None not in (chosen.max_micro_batches, chosen.max_tokens):
        raise OptionError("search.max_tokens: replaces search.max_micro_batches; leave one of the two out")
    for name in ("method", "scenarios", "begin_with"):
        if options.schedule != "searched" or getattr(chosen, name) != getattr(SearchOptions, name):
            name = f"search.{name}" if options.schedule == "searched" else "schedule"
            raise OptionError(f"{name}: is not for several replicas; leave it or search.replicas out")


def search_replicas(options: SearchCommandOptions, problem: SearchProblem) -> tuple[Schedule, Result]:
    """Search the assignment; return the schedule of the slowest replica, and the result of all.

    Raises:
        OptionError: No schedule fits the memory, or the placement is not for replicas.
        Interrupted: Before any was found.
    """
    chosen, placement = options.search, problem.placement
    batch = problem.batch or UnequalBatch(placement, (), chosen.num_micro_batches, problem.tokens)
    limits = {name: getattr(chosen, name) for name in ("work_limit", "time_limit_s", "seed")}
    objective = finite_objective(chosen)
    assert chosen.replicas is not None, "it is checked"
    try:
        work = replica_work(batch, chosen.replicas, chosen.max_micro_batches, chosen.max_tokens)
    except MicroBatchError as error:
        raise OptionError(str(error)) from None
    with SearchBar(placement.tick_ms) as bar:
        found, answer = replica_search(work, objective=objective, on_progress=bar, **limits)
    if found is None:
        if answer.interrupted:
            raise Interrupted("interrupted before a schedule was found")
        raise OptionError(f"search.memory: {answer.reason}")
    is_span = objective is Objective.DEVICE_SPAN
    best, bound = found.value(objective), answer.device_span_bound if is_span else answer.makespan_bound
    proof = "proved" if best <= bound else f"none is under {placement.ms(bound):,.6g} ms"
    name = objective.value.replace("_", " ")
    rows = [
        ReplicaRow(replica, place, number)
        for replica, numbers in enumerate(found.assigned)
        for place, number in enumerate(numbers)
    ]
    return found.of_slowest(objective), Result(
        tables={"replicas": Table(ReplicaRow, rows)},
        files={
            f"replica_{number}/schedule.json": schedule_to_dict(schedule)
            for number, schedule in enumerate(found.schedules)
            if schedule is not None
        },
        sentences=[f"{chosen.replicas} replicas: {name} {placement.ms(best):,.6g} ms, {proof}"],
    )
