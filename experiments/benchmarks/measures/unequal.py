"""One batch of micro-batches that differ, beside the orders that people use; sequences in slices.

``over_hand`` is our makespan over the best by hand; where none fits it is 0. ``over_bound`` is it over the
bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.benchmarks.inputs.batches import published_shop
from experiments.benchmarks.inputs.batches import sequences as sequences_batch
from experiments.benchmarks.timing import load_solvers
from placements.gpus import GPUS
from placements.planners.hybrid.placing.gpt import gpt_model, place_gpt
from placements.slices.slices import gpt_in_slices
from schedsearch.baselines import HAND_MADE, UnsuitablePlacementError, seq_one_f_one_b
from schedsearch.core.objective import Objective
from schedsearch.core.problem import Problem
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search
from schedsearch.unequal.replica_work import replica_work
from schedsearch.unequal.starts import by_hand, replicas_by_hand
from schedsearch.unequal.unequal_search import replica_search
from schedsearch.validate import InvalidScheduleError, validate

_SEQUENCES = 4
"""Micro-batches of sequences in slices."""


def prepare() -> None:
    """Load and compile all that a search uses."""
    load_solvers()
    search(published_shop("johnson"), work_limit=5)


def sequences(*, seed: int, split: bool, work_limit: float, limited: bool = True) -> dict[str, Any]:
    """Search a batch of sequences, beside 1F1B and ZB-H1 in arrival order and sorted."""
    batch = sequences_batch(seed, split, limited)
    made = by_hand(batch, ("one_f_one_b", "zb_h1"))
    hand = {name: schedule.makespan for name, schedule in made.items() if schedule is not None}
    return _with_ratios(_batch_figures(batch, work_limit, seed), hand)


def shop(*, shop: str, work_limit: float) -> dict[str, Any]:
    """Search a published shop."""
    return _batch_figures(published_shop(shop), work_limit, 0)


def _batch_figures(batch: Problem, work_limit: float, seed: int) -> dict[str, Any]:
    found = search(batch, work_limit=work_limit, seed=seed)
    makespan = None if found.schedule is None else found.schedule.makespan
    return {"status": found.status.value, "makespan": makespan, "makespan_bound": found.makespan_bound}


def _with_ratios(figures: dict[str, Any], hand: Mapping[str, float]) -> dict[str, Any]:
    best = min(hand, key=hand.__getitem__, default=None)
    return figures | {
        "over_bound": figures["makespan"] / figures["makespan_bound"],
        "best_by_hand": best,
        "over_hand": 0.0 if best is None else figures["makespan"] / hand[best],
    }


def replicas(*, seed: int, split: bool, number: int, work_limit: float) -> dict[str, Any]:
    """Search a batch of sequences on several replicas; ``over_more`` is after one unit of work over this."""
    work = replica_work(sequences_batch(seed, split), number)
    (_, quick), (_, found) = (replica_search(work, work_limit=limit, seed=seed) for limit in (1, work_limit))
    assert found.schedule is not None and quick.schedule is not None
    makespan = found.schedule.makespan
    figures = {"makespan": makespan, "makespan_bound": found.makespan_bound}
    made = replicas_by_hand(work, ("one_f_one_b", "zb_h1"))
    hand = {name: each.value(Objective.MAKESPAN) for name, each in made.items() if each is not None}
    return _with_ratios(figures, hand) | {"over_more": quick.schedule.makespan / makespan}


def in_slices(*, tokens: int, partition: str, memory_of: str, work_limit: float) -> dict[str, Any]:
    """Search sequences in 8 slices: a GPT of 7 billion parameters on 4 stages of 16 GB300, modelled.

    The memory is what the ``GPUs`` have left, or as much as ``Seq1F1B`` needs. The search begins with the
    best by hand that fits.
    """
    model = gpt_model(32, 4096, 32, vocab_size=128_256, sequence_length=tokens)
    whole = place_gpt(model, GPUS["gb300"], 4, "v_shape", micro_batch_size=1, num_gpus=16)
    placement = gpt_in_slices(whole, 8, partition)
    if memory_of == "Seq1F1B":
        free = seq_one_f_one_b(placement.with_memory(None), _SEQUENCES)
        placement = placement.with_memory(int(max(peak_memory(free))))
    hand: dict[str, Schedule] = {}
    for name in ("gpipe", "seq_one_f_one_b"):
        try:
            hand[name] = validate(HAND_MADE[name](placement, _SEQUENCES))
        except (UnsuitablePlacementError, InvalidScheduleError):
            continue
    begin = min(hand.values(), key=lambda schedule: schedule.makespan, default=None)
    found = search(placement, _SEQUENCES, objectives=["makespan"], work_limit=work_limit, begin_with=begin)
    assert found.schedule is not None
    figures = {
        "makespan": placement.ms(found.schedule.makespan),
        "makespan_bound": placement.ms(found.makespan_bound),
        "idle": bubble_rate(found.schedule),
        "peak_gib": placement.mib(int(max(peak_memory(found.schedule)))) / 1024,
    }
    return _with_ratios(figures, {name: placement.ms(schedule.makespan) for name, schedule in hand.items()})
