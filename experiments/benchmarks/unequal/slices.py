"""Long sequences in slices: what a search reaches in the memory of Seq1F1B, and in that of the GPUs."""

from __future__ import annotations

from experiments.benchmarks.results import CaseResult, true_of
from experiments.benchmarks.timing import timed
from placements import Placement
from placements.gpus import GPUS
from placements.models.gpt.gpt_config import GptConfig
from placements.slices.gpt_slices import gpt_in_slices
from schedsearch.baselines import HAND_MADE, SLICED, UnsuitablePlacementError, seq_one_f_one_b
from schedsearch.metrics import bubble_rate, peak_memory
from schedsearch.modulo.search import search
from schedsearch.schedule import Schedule
from schedsearch.validate import InvalidScheduleError, validate

_NUMBER = 4
"""Micro-batches, each of one sequence."""


def long_sequences(tokens: int, partition: str, num_slices: int = 8) -> Placement:
    """Return a GPT of 7 billion parameters on 4 stages of 16 GB300, by the cost model."""
    config = GptConfig(
        num_layers=32,
        hidden_size=4096,
        num_heads=32,
        vocab_size=128_256,
        sequence_length=tokens,
        micro_batch_size=1,
    )
    return gpt_in_slices(config, GPUS["gb300"], 4, num_slices, partition, num_gpus=16)


def in_memory(placement: Placement) -> dict[str, Schedule]:
    """Return the schedules by hand that fit a placement's memory, by name."""
    found = {}
    for name in ("gpipe", *SLICED):
        try:
            found[name] = validate(HAND_MADE[name](placement, _NUMBER))
        except (UnsuitablePlacementError, InvalidScheduleError):
            continue
    return found


def in_slices(tokens: int, partition: str, own_memory: bool, work: float) -> CaseResult:
    """Measure sequences in slices: not longer than the best by hand in the same memory.

    Args:
        tokens: Tokens of a sequence.
        partition: How it is cut.
        own_memory: Whether the memory is what the GPUs have left; else as much as Seq1F1B needs.
        work: Units of work of the search.
    """
    placement = long_sequences(tokens, partition)
    free = placement.with_memory(None)
    if not own_memory:
        placement = placement.with_memory(int(max(peak_memory(seq_one_f_one_b(free, _NUMBER)))))
    hand = in_memory(placement)
    best = min(hand, key=lambda name: hand[name].makespan, default=None)
    begin = None if best is None else hand[best]
    found, seconds = timed(
        lambda: search(placement, _NUMBER, objectives=["makespan"], work_limit=work, begin_with=begin)
    )
    assert found.schedule is not None
    ours = found.schedule
    made = "none by hand fits" if begin is None else f"{best} {placement.ms(begin.makespan):,.0f} ms"
    peak = placement.mib(int(max(peak_memory(ours)))) / 1024
    return CaseResult(
        cpu_s=seconds,
        missed=true_of({"longer than by hand": begin is not None and ours.makespan > begin.makespan}),
        status=found.status.value,
        makespan=ours.makespan,
        makespan_bound=found.makespan_bound,
        note=f"{placement.ms(ours.makespan):,.0f} ms, {bubble_rate(ours):.1%} idle, {peak:.0f} GiB; {made}; "
        f"bound {placement.ms(found.makespan_bound):,.0f} ms",
    )
