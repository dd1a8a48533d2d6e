"""Fig. 13 and 14: the throughput of GPT and mT5 on the paper's GPUs, by 1F1B, 1F1B+, Chimera and Tessel.

1F1B has the best plan in a V-shape; 1F1B+ and our search share the best one with the vocabulary on all GPUs.
Of Chimera only the states are counted. Times are modelled from data sheets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.config.options import require_limits
from experiments.reproduce.item import Claim, Item, Row, Trend
from experiments.reproduce.item_options import check_names
from experiments.reproduce.rows import bars, cases_in, listed, rows_with, span, value_of
from experiments.reproduce.tessel.large_vocabulary import (
    PAPER_CASES,
    PAPER_SPEEDUPS,
    SAMPLES,
    cluster_of,
    model_of,
)
from experiments.reproduce.tessel.published import OVER_ONE_F_ONE_B_PLUS
from experiments.reproduce.tessel.run_times import (
    PlanPlacement,
    hand_made_schedule,
    plan_in_words,
    searched_schedule,
    shared_shape_of,
    v_shape_of,
)
from placements.forms.meaning import option
from schedsearch.figures.bars import BarPanel, draw_bars
from schedsearch.schedule import Schedule

_PFLOPS, _STATES_GIB, _SPEEDUP = "pflops", "min_state_gib", "speedup"
_TESSEL, _PLUS, _PLAIN, _CHIMERA = "Tessel's placement, our search", "1F1B+", "1F1B", "Chimera"

_BAND = 0.1
"""How far our largest speedup may be from the paper's, as a part of it."""

_REPLICAS = 2
"""Copies of the model in Chimera: each GPU has a stage of both directions."""

_PER_FORWARD = 3
"""Operations of forward and backward over those of the forward; what is computed again does not count."""


@dataclass(frozen=True)
class ThroughputOptions:
    """Options of the item: the models, and the limit of a search."""

    models: tuple[str, ...] = option(tuple(PAPER_CASES), "models of Tessel's Table III")
    work_limit: float = option(
        10.0, "work limit of the search for each schedule, in units of about 1 s of one core"
    )


def _cases(options: ThroughputOptions) -> Sequence[str]:
    check_names("models", options.models, PAPER_CASES)
    require_limits(options)
    return options.models


def _rows(options: ThroughputOptions, case: str) -> Iterator[Row]:
    own = PAPER_CASES[case]
    model, ordinary, shared = model_of(own), v_shape_of(own), shared_shape_of(own)
    made = {
        _PLAIN: (ordinary, None if ordinary is None else hand_made_schedule(ordinary, "one_f_one_b")),
        _PLUS: (shared, None if shared is None else hand_made_schedule(shared, "one_f_one_b_plus")),
        _TESSEL: (shared, None if shared is None else searched_schedule(shared, options.work_limit)),
    }
    seconds = {label: _seconds(*pair) for label, pair in made.items()}
    operations = _PER_FORWARD * model.forward_flops * SAMPLES
    for label, (planned, _) in made.items():
        took_s = seconds[label]
        note = "no schedule fits in memory, or none is defined: see Fig. 16"
        if planned is not None and took_s is not None:
            note = plan_in_words(planned.plan)
        pflops = None if took_s is None else operations / took_s / 1e15
        yield Row(label, _PFLOPS, pflops, digits=3, note=note, series=label)
    for label, published in ((_PLAIN, PAPER_SPEEDUPS[own.shape]), (_PLUS, OVER_ONE_F_ONE_B_PLUS)):
        theirs, ours = seconds[label], seconds[_TESSEL]
        ratio = theirs / ours if theirs and ours else None
        note = "the paper's is the largest of its models" if ratio else "not defined"
        yield Row(f"{_TESSEL} / {label}", _SPEEDUP, ratio, published, digits=1, note=note, series=label)
    states_gib = _REPLICAS * model.num_parameters * own.state_bytes / own.num_gpus / 2**30
    memory_gib = cluster_of(own).whole.memory_gib
    note = f"{'fits in' if states_gib <= memory_gib else 'more than'} {memory_gib:g} GiB, by its states alone"
    yield Row(_CHIMERA, _STATES_GIB, states_gib, digits=1, note=note, series=_CHIMERA, bound=memory_gib)


def _seconds(planned: PlanPlacement | None, schedule: Schedule | None) -> float | None:
    return None if planned is None or schedule is None else planned.seconds(schedule.makespan)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    over = value_of(rows_with(rows, metric=_SPEEDUP), "series", "case")
    plus = [ratio for (label, _), ratio in over.items() if label == _PLUS]
    most = max(plus, default=0.0)
    yield Trend(
        f"up to {OVER_ONE_F_ONE_B_PLUS:g} times the throughput of 1F1B+ (within {_BAND:.0%})",
        bool(plus) and min(plus) > 1 and abs(most / OVER_ONE_F_ONE_B_PLUS - 1) <= _BAND,
        span(plus),
    )
    plain = {case: ratio for (label, case), ratio in over.items() if label == _PLAIN}
    yield Trend(
        "more throughput than 1F1B for every model", min(plain.values(), default=0) > 1, listed(plain)
    )
    several = {case for case in cases_in(rows) if len({*cluster_of(PAPER_CASES[case]).node_of}) > 1}
    pairs = {case: over[_PLAIN, case] / over[_PLUS, case] for case in several if (_PLUS, case) in over}
    if pairs:
        holds = min(pairs.values()) > 1
        yield Trend("over several servers 1F1B+ has more throughput than 1F1B", holds, listed(pairs))
    states = rows_with(rows, metric=_STATES_GIB)
    too_much = {
        row.case for row in states if row.ours is not None and row.bound is not None and row.ours > row.bound
    }
    gpts = {row.case for row in states if PAPER_CASES[row.case].shape == "m_shape"}
    if gpts:
        yield Trend(
            "Chimera does not fit for any GPT, as each GPU has two stages' parameters",
            gpts <= too_much,
            f"{len(gpts & too_much)} of {len(gpts)} by their states alone",
        )
    small = {row.case for row in states if row.case not in gpts and row.case not in several}
    if small:
        yield Trend(
            "Chimera fits for mT5 within one server",
            not small & too_much,
            f"{len(small - too_much)} of {len(small)} by their states alone",
        )


def _draw(rows: Sequence[Row]) -> Any:
    return draw_bars([BarPanel("", bars(rows_with(rows, metric=_PFLOPS)))], "PFLOPS")


FIGURE_13 = Item(
    name="tessel_figure13",
    paper="Tessel",
    part="Fig. 13 and 14, on the paper's GPUs",
    title="Throughput of GPT and mT5 by 1F1B, 1F1B+, Chimera and Tessel",
    claim=Claim.TREND,
    known=_cases,
    make=_rows,
    conclude=_trends,
    draw=_draw,
    small=ThroughputOptions(models=("gpt_11b", "mt5_1.8b"), work_limit=2.5),
    because=(
        "Modelled; the paper's PFLOPS are only drawn. With 8 bytes for each parameter, which it does not "
        "say, all models fit on its GPUs. 1F1B then has a plan of few stages, whose GPUs share the table "
        "within a server, so that it is faster than 1F1B+. With 16 bytes, as in `large_vocabulary`, the "
        "table goes over servers and 1F1B is the slower one, as in the paper. Chimera's states are counted; "
        "its time is not modelled, as its two directions need even stages"
    ),
    supported_by="test_what_a_parameter_needs_decides_between_1f1b_and_1f1b_plus",
)
"""Four systems, eight models."""
