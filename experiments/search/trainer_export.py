"""A schedule's layers and modes for trainers; where one cannot say the modes, the nearest that it can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from experiments.config.options import OptionError
from experiments.search.options import SearchCommandOptions
from experiments.search.problem import SearchProblem
from placements import Kind
from placements.planners.hybrid.plan import PlanError
from placements.trainers.files import TRAINERS, job_files
from placements.trainers.job import TrainerJob, plan_job
from placements.trainers.megatron_layout import read_notation
from placements.trainers.stage_modes import ModeError, chosen_modes
from schedsearch.baselines import interleaved_one_f_one_b, one_f_one_b
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.comparison.rows import compared
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Schedule, as_soon_as_possible
from schedsearch.validate import validate

_OWN_ORDERS = {"1F1B": one_f_one_b, "interleaved 1F1B": interleaved_one_f_one_b}
"""Orders that trainers have themselves."""


def trainer_job(options: SearchCommandOptions, problem: SearchProblem) -> TrainerJob:
    """Return the job of a placement, in the modes in which its blocks are written.

    Raises:
        OptionError: Its layers are not known, or trainers cannot run its shape or know its modes.
    """
    built, placement, text = problem.built, problem.placement, options.search.layout
    try:
        if text is None and (plan := built.plan or built.planned):
            job = plan_job(plan, options.search.num_micro_batches, "trainers")
        elif stages := read_notation(text, placement.num_devices, "search.layout") if text else built.layout:
            job = TrainerJob(stages=stages)
        else:
            known = f"the layers of the stages of {placement.name} are not known"
            raise PlanError(f"{known}; give search.layout, as Et*4|t*4|t*4L")
        job = replace(job, modes=job.stage_modes)
        chosen_modes(placement, [(0,) * len(placement.decisions)], job, [0])
    except PlanError as error:
        raise OptionError(f"search.export: {error}") from None
    return job


def trainer_files(
    options: SearchCommandOptions, problem: SearchProblem, schedule: Schedule
) -> tuple[dict[str, object], list[str]]:
    """Return the files for the trainers of the options, and lines on each."""
    files, lines, placement = dict[str, object](), list[str](), schedule.placement
    first = next(block.name for block in placement.topological_order if block.kind is Kind.F)
    unlimited = schedule.under(placement.with_memory(None))
    for trainer in (export for export in options.search.exports if export in TRAINERS):
        job, name, reason = trainer_job(options, problem), TRAINERS[trainer][0], ""
        for candidate in chain([schedule], _alike(schedule), _alike(unlimited)):
            order = [block.micro_batch for block in candidate.blocks if block.block == first]
            modes = chosen_modes(placement, candidate.chosen, job, order) if candidate.chosen else job.modes
            notes = [f"{name} {reason}; nearest: {_beside(candidate, schedule, problem)}"] if reason else []
            notes.append(f"{len(order)} micro-batches for {name}, {_order_line(candidate, trainer)}")
            try:
                texts = job_files(trainer, replace(job, modes=modes), notes)
            except ModeError as error:
                reason = reason or str(error)
                continue
            files |= {f"export/{path}": text for path, text in texts.items()}
            lines += [*notes[:-1], f"exported to export/{' and '.join(texts)}: {notes[-1]}"]
            break
        else:
            lines.append(f"not exported: {name} {reason}")
    return files, lines


def _alike(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules whose micro-batches all have the same modes, the shortest first.

    The modes are those that people choose, and the most frequent ones of each stage; the orders are those of
    trainers, and this one.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    schedules = [made for _, made in with_chosen_modes(placement, number, _OWN_ORDERS)]
    most = tuple(Counter(column).most_common(1)[0][0] for column in zip(*schedule.chosen, strict=True))
    for chosen in dict.fromkeys([most, *(made.chosen[0] for made in schedules)]):
        schedules += _in_order(schedule, replace(schedule, chosen=(chosen,) * number))
    yield from sorted(schedules, key=attrgetter("makespan"))


def _in_order(base: Schedule, modes: Schedule) -> list[Schedule]:
    """Return the schedule with the order of one and the modes of another; nothing where it is not valid."""
    placement, number = modes.placement, modes.num_micro_batches
    with suppress(KeyError, ValueError):
        return [validate(as_soon_as_possible(placement, number, base.lane_orders, modes.chosen))]
    return []


def _beside(near: Schedule, schedule: Schedule, problem: SearchProblem) -> str:
    """Return the nearest modes in words; compare their time and memory with the schedule's."""
    decisions, ms = schedule.placement.decisions, near.makespan * near.placement.tick_ms
    names = [decision.names[number] for decision, number in zip(decisions, near.chosen[0], strict=True)]
    where = f"{names[0]} everywhere" if len({*names}) == 1 else f"{', '.join(names)} on its stages"
    peak, most = (int(peak_memory(candidate).max()) for candidate in (near, schedule))
    return (
        f"{where}, {compared(near.makespan, schedule.makespan, 'time')} the searched ({ms:,.6g} ms), "
        f"{compared(peak, max(most, 1), 'memory')} the searched ({peak:,} {problem.memory_unit or 'units'})"
        f"{', which does not fit' * (near.placement != schedule.placement)}"
    )


def _order_line(schedule: Schedule, trainer: str) -> str:
    """Return the order in which a schedule runs, and how much longer the trainer's own takes.

    Our hook for orders runs neither offloading nor modes that differ by micro-batch.
    """
    placement, number = schedule.placement, schedule.num_micro_batches
    has_copies = schedule.as_run(0).has_streams
    path = "schedule.csv" if trainer == "torchtitan" else "schedule.json"
    computing = placement.as_run((0,) * len(placement.decisions)).with_memory(None)
    for name, make in _OWN_ORDERS.items():
        with suppress(ValueError):
            base, made = make(computing, number), with_chosen_modes(placement, number, {name: make})
            theirs = [variant for _, variant in made if variant.chosen == schedule.chosen]
            theirs = theirs or ([] if has_copies else _in_order(base, schedule))
            if theirs and theirs[0].lane_orders == schedule.lane_orders:
                return f"in its own order, {name}"
            takes = "does not fit, unlike"
            if theirs:
                takes = f"takes {compared(theirs[0].makespan, schedule.makespan)}"
            if has_copies or len({*schedule.chosen}) > 1:
                return f"in its own order, {name}, which {takes} that of {path}"
            return f"in the order of {path}; its own, {name}, {takes} it"
    return f"in the order of {path}"
