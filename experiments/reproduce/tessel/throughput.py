"""Fig. 13 and 14: the throughput of GPT and mT5 on the paper's GPUs, by 1F1B, 1F1B+, Chimera and Tessel.

1F1B has the best plan in a V-shape; 1F1B+ and our search share the best one with the vocabulary on all GPUs.
Of Chimera only the states are counted. Times are modelled from data sheets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.rows import cases_in, draw_metrics, listed, rows_with, span, value_of
from experiments.reproduce.tessel.vocabulary_plans import (
    PLAIN,
    PLUS,
    SAMPLES,
    TESSEL,
    LargeVocabularyCase,
    PlanPlacement,
    VocabularyOptions,
    cluster_of,
    model_of,
    scheduled,
)
from schedsearch.schedule import Schedule

PAPER_SPEEDUPS = {"m_shape": 4.8, "nn_shape": 5.5}
"""Largest speedup of Tessel's shape over existing schedules (Tessel, Sec. VI-D)."""

OVER_ONE_F_ONE_B_PLUS = 1.4
"""Tessel's speedup over 1F1B+ in training, at most, of GPT and of mT5 (Sec. VI-D, of Fig. 13 and 14)."""

FP16_STATES = 8
"""Bytes of a parameter whose weight, gradient and two moments have 16 bits each."""

PAPER_CASES = {
    model: LargeVocabularyCase(model, num_gpus, shape, FP16_STATES)
    for shape, models in (
        ("m_shape", ("gpt_11b", "gpt_24b", "gpt_47b", "gpt_77b")),
        ("nn_shape", ("mt5_1.8b", "mt5_9.5b", "mt5_43b", "mt5_88b")),
    )
    for model, num_gpus in zip(models, (4, 8, 16, 32), strict=True)
}
"""On the paper's GPUs, where the larger models do not fit with 16 bytes for each parameter."""

_PFLOPS, _STATES_GIB, _SPEEDUP = "pflops", "min_state_gib", "speedup"
_CHIMERA = "Chimera"

_BAND = 0.1
"""Largest difference of our largest speedup from the paper's, as a part of it."""

_REPLICAS = 2
"""Copies of the model in Chimera: each GPU has a stage of both directions."""

_PER_FORWARD = 3
"""Operations of forward and backward over those of the forward; what is computed again does not count."""


def _rows(options: VocabularyOptions, case: str) -> Iterator[Row]:
    own = PAPER_CASES[case]
    model, made = model_of(own), scheduled(own, options.work_limit)
    seconds = {label: _seconds(*pair) for label, pair in made.items()}
    operations = _PER_FORWARD * model.forward_flops * SAMPLES
    for label, (found, _) in made.items():
        took_s = seconds[label]
        note = "no schedule fits in memory, or none is defined: see Fig. 16"
        if found is not None and took_s is not None:
            note = found.in_words
        pflops = None if took_s is None else operations / took_s / 1e15
        yield Row(label, _PFLOPS, pflops, digits=3, note=note, series=label)
    for label, published in ((PLAIN, PAPER_SPEEDUPS[own.shape]), (PLUS, OVER_ONE_F_ONE_B_PLUS)):
        theirs, ours = seconds[label], seconds[TESSEL]
        ratio = theirs / ours if theirs and ours else None
        note = "the paper's is the largest of its models" if ratio else "not defined"
        yield Row(f"{TESSEL} / {label}", _SPEEDUP, ratio, published, digits=1, note=note, series=label)
    states_gib = _REPLICAS * model.num_parameters * own.state_bytes / own.num_gpus / 2**30
    memory_gib = cluster_of(own).whole.memory_gib
    note = f"{'fits in' if states_gib <= memory_gib else 'more than'} {memory_gib:g} GiB, by its states alone"
    yield Row(_CHIMERA, _STATES_GIB, states_gib, digits=1, note=note, series=_CHIMERA, bound=memory_gib)


def _seconds(found: PlanPlacement | None, schedule: Schedule | None) -> float | None:
    return None if found is None or schedule is None else found.seconds(schedule.makespan)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    over = value_of(rows_with(rows, metric=_SPEEDUP), "series", "case")
    plus = [ratio for (label, _), ratio in over.items() if label == PLUS]
    most = max(plus, default=0.0)
    yield Trend(
        f"up to {OVER_ONE_F_ONE_B_PLUS:g} times the throughput of 1F1B+ (within {_BAND:.0%})",
        bool(plus) and min(plus) > 1 and abs(most / OVER_ONE_F_ONE_B_PLUS - 1) <= _BAND,
        span(plus),
    )
    plain = {case: ratio for (label, case), ratio in over.items() if label == PLAIN}
    yield Trend(
        "more throughput than 1F1B for every model", min(plain.values(), default=0) > 1, listed(plain)
    )
    several = [case for case in cases_in(rows) if len({*cluster_of(PAPER_CASES[case]).node_of}) > 1]
    pairs = {case: over[PLAIN, case] / over[PLUS, case] for case in several if (PLUS, case) in over}
    if pairs:
        holds = min(pairs.values()) > 1
        yield Trend("over several servers 1F1B+ has more throughput than 1F1B", holds, listed(pairs))
    states = rows_with(rows, metric=_STATES_GIB)
    too_much = {row.case for row in states if (row.ours or 0.0) > (row.bound or 0.0)}
    gpts = {row.case for row in states if PAPER_CASES[row.case].shape == "m_shape"}
    small = {row.case for row in states if row.case not in gpts and row.case not in several}
    for says, cases, good in (
        ("Chimera does not fit for any GPT, as each GPU has two stages' parameters", gpts, gpts & too_much),
        ("Chimera fits for mT5 within one server", small, small - too_much),
    ):
        if cases:
            yield Trend(says, good == cases, f"{len(good)} of {len(cases)} by their states alone")


FIGURE_13 = described(
    "tessel_figure13",
    tuple(PAPER_CASES),
    _rows,
    conclude=_trends,
    draw=lambda rows: draw_metrics(rows, "PFLOPS", {_PFLOPS: ""}),
    small=VocabularyOptions(("gpt_11b", "mt5_1.8b"), work_limit=2.5),
)

ITEMS = (FIGURE_13,)
