"""One batch on several data-parallel replicas: which gets which micro-batch, beside usual assignments."""

from __future__ import annotations

import logging
from pathlib import Path

from experiments.config.command import Interrupted
from experiments.config.options import OptionError, require, require_least
from experiments.search.options import SearchCommandOptions
from experiments.search.problem import SearchProblem
from placements import Placement
from placements.forms.texts import csv_text, write_json, write_text
from schedsearch.core.objective import Objective
from schedsearch.core.problem import Problem
from schedsearch.core.progress import SearchBar
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import schedule_to_dict
from schedsearch.unequal.micro_batches import MicroBatchError
from schedsearch.unequal.replica_work import ReplicaSchedules, replica_work
from schedsearch.unequal.starts import replicas_by_hand
from schedsearch.unequal.unequal_search import replica_search

log = logging.getLogger(__name__)

_COLUMNS = ("replica", "place", "micro_batch", "start_ms", "end_ms")


def check_replicas(options: SearchCommandOptions) -> bool:
    """Return whether there are several replicas; reject options that do not go with them."""
    chosen = options.search
    limits = {name: getattr(chosen, name) for name in ("max_micro_batches", "max_tokens")}
    if chosen.replicas is None:
        for name, limit in limits.items():
            require(limit is None, f"search.{name}", limit, "used", "give search.replicas, or leave it out")
        return False
    if None not in limits.values():
        raise OptionError("search.max_tokens: replaces search.max_micro_batches; leave one of the two out")
    if type(options) is not SearchCommandOptions:
        raise OptionError(
            "search.replicas: is for schedsearch search alone; leave it out, and give the micro-batches of "
            "one replica, as its replicas.csv says them"
        )
    require_least("search.replicas", chosen.replicas, 1)
    for name, limit in limits.items():
        require_least(f"search.{name}", limit, 1)
    for name, is_given in (
        ("schedule", options.schedule != "searched"),
        ("search.method", chosen.method != "modulo"),
        ("search.scenarios", chosen.scenarios is not None),
        ("search.begin_with", chosen.begin_with is not None),
    ):
        if is_given:
            raise OptionError(f"{name}: is not for several replicas; leave it or search.replicas out")
    return True


def search_replicas(options: SearchCommandOptions, problem: SearchProblem, directory: Path) -> Schedule:
    """Search the assignment; write ``replicas.csv`` and the schedule of each replica; return the slowest's.

    Raises:
        OptionError: No schedule fits the memory, or the placement is not for replicas.
        Interrupted: Before any was found.
    """
    chosen, placement = options.search, problem.placement
    batch = problem.batch or Problem(placement, chosen.num_micro_batches, tokens=problem.tokens)
    assert chosen.replicas is not None, "it is checked"
    try:
        work = replica_work(batch, chosen.replicas, chosen.max_micro_batches, chosen.max_tokens)
    except MicroBatchError as error:
        raise OptionError(str(error)) from None
    last = str(chosen.objectives[-1]) if chosen.objectives else ""
    objective = Objective.DEVICE_SPAN if last == Objective.DEVICE_SPAN else Objective.MAKESPAN
    with SearchBar(placement.tick_ms) as bar:
        found, result = replica_search(
            work,
            objectives=[objective],
            work_limit=chosen.work_limit,
            time_limit_s=chosen.time_limit_s,
            seed=chosen.seed,
            on_progress=bar,
        )
    if found is None:
        if result.interrupted:
            raise Interrupted("interrupted before a schedule was found")
        raise OptionError("search.memory: no assignment was found that fits; raise it")
    save(found, placement, directory)
    is_span = objective is Objective.DEVICE_SPAN
    best, bound = found.value(objective), result.device_span_bound if is_span else result.makespan_bound
    hand = sorted(replicas_by_hand(work, ("one_f_one_b", "zb_h1")).items())
    named = [(name, placement.ms(each.value(objective))) for name, each in hand if each is not None]
    listed = "".join(f", {name} {ms:,.6g} ms" for name, ms in named)
    proof = "proved" if best <= bound else f"none is under {placement.ms(bound):,.6g} ms"
    name = objective.value.replace("_", " ")
    found_in = f"{name} {placement.ms(best):,.6g} ms, {proof}{listed}"
    log.info("%d replicas: %s", work.num_replicas, found_in)
    log.info("which replica gets what: %s", directory / "replicas.csv")
    return found.of_slowest(objective)


def save(found: ReplicaSchedules, placement: Placement, directory: Path) -> None:
    """Write the micro-batches of each replica, and its schedule."""
    rows = []
    for replica, (numbers, schedule) in enumerate(zip(found.assigned, found.schedules, strict=True)):
        if schedule is None:
            continue
        write_json(directory / f"replica_{replica}" / "schedule.json", schedule_to_dict(schedule))
        for place, number in enumerate(numbers):
            own = [each for each in schedule.blocks if each.micro_batch == place]
            ends = [each.start + schedule.block(each.block, place).time for each in own]
            first = min((each.start for each in own), default=0)
            span = placement.ms(first), placement.ms(max(ends, default=0))
            rows.append([replica, place, number, *span])
    write_text(directory / "replicas.csv", csv_text(_COLUMNS, rows))
