"""Tables 4.1 and 4.2 and Fig. 4.6: the closed forms of chapter 4, beside printed values and schedules.

The bubble is idle time over the time of computing, not over the whole iteration, as in the dissertation. Ours
is of a schedule that is made and simulated; published is the formula that is printed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from experiments.reproduce.item import Basis, CaseOptions, Claim, Row, Trend, described
from experiments.reproduce.rows import draw_curves, grouped, numbers, published_table
from placements.models.zoo import decoder
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.metrics import bubble_rate
from schedsearch.schedule import Schedule

VOCABULARY = 51_200
SEQUENCE_LENGTH = 2048
"""Vocabulary and tokens of a sample of all models of chapter 4 (Sec. 4.5.1)."""

PEAK_TFLOPS = 312.0
"""Peak of an A100."""

TOKENS = 300e9
"""Tokens of the trainings in Table 4.2."""

SHAPES = {174.6: (96, 12288), 529.6: (105, 20480)}
"""Layers and width by the billions of parameters of Table 4.2."""

FIGURE_4_6 = ((32, 32), (32, 128), (128, 128), (128, 512))
"""GPUs n and batch over micro-batch size b' of its curves."""

PERCENT = "percent_of_peak"
_SECONDS_OF_DAY = 86_400


class WeakScaling(NamedTuple):
    """A row of Table 4.1: parameters in 1e9, p = 1 where the scanned table has a dash, a batch in sequences.

    Throughputs are those of each GPU, also as a share of `PEAK_TFLOPS`, and of all together.
    """

    parameters_b: float
    num_heads: int
    hidden_size: int
    num_layers: int
    tensor_parallel: int
    num_stages: int
    num_gpus: int
    batch_size: int
    tflops: float
    percent_of_peak: float
    pflops: float


class TrainingTime(NamedTuple):
    """A row of Table 4.2: days for `TOKENS`, at the TFLOP/s of each GPU."""

    scheme: str
    parameters_b: float
    batch_size: int
    num_gpus: int
    micro_batch_size: int
    tflops: float
    days: int


TABLE_4_1 = {f"{row.parameters_b:g}b": row for row in published_table(__file__, "table4_1.csv", WeakScaling)}
TABLE_4_2 = published_table(__file__, "table4_2.csv", TrainingTime)


class Example(NamedTuple):
    """A training whose days the text counts: parameters and tokens in 1e9."""

    parameters_b: float
    tokens_b: float
    num_gpus: int
    tflops: float
    days: int


EXAMPLES = {
    "gpt3": Example(175.0, 300.0, 1024, 140.0, 34),
    "1t": Example(1008.0, 450.0, 3072, 163.0, 84),
}
"""Trainings of Sec. 4.5.1, by eq. 4.4."""


def parameters(num_layers: int, hidden_size: int) -> float:
    """Return the parameters of a GPT (eq. 4.3).

    >>> round(parameters(96, 12288) / 1e9, 1)
    174.6
    """
    h, layers = hidden_size, num_layers
    return 12 * layers * h**2 * (1 + 13 / (12 * h) + (VOCABULARY + SEQUENCE_LENGTH) / (12 * layers * h))


def iteration_flops(num_layers: int, hidden_size: int, batch_size: int) -> float:
    """Return the operations of an iteration that computes forwards twice (eq. 4.2)."""
    h, layers, s = hidden_size, num_layers, SEQUENCE_LENGTH
    return 96 * batch_size * s * layers * h**2 * (1 + s / (6 * h) + VOCABULARY / (16 * layers * h))


def days_by_parameters(num_parameters: float, tokens: float, flops_per_s: float) -> float:
    """Return the days of training by eq. 4.4, which leaves out the attention's core and the output layer."""
    return 8 * tokens * num_parameters / flops_per_s / _SECONDS_OF_DAY


def bubble_over_ideal(schedule: Schedule) -> float:
    """Return idle time over the time of computing (Sec. 4.2.2).

    >>> round(bubble_over_ideal(one_f_one_b(v_shape(4), 8)), 12)  # (p - 1) / m
    0.375
    """
    rate = bubble_rate(schedule)
    return rate / (1 - rate)


def _table_4_1_rows(_: CaseOptions, row: WeakScaling) -> Iterator[Row]:
    name, shape = f"{row.parameters_b:g} billion", (row.num_layers, row.hidden_size)
    ours = parameters(*shape) / 1e9
    yield Row(f"{name}, eq. 4.3", "parameters_b", ours, row.parameters_b, 1, basis=Basis.FORMULA)
    model = decoder(
        "gpt",
        num_layers=row.num_layers,
        hidden_size=row.hidden_size,
        num_heads=row.num_heads,
        vocab_size=VOCABULARY,
        sequence_length=SEQUENCE_LENGTH,
    )
    ours, note = model.num_parameters / 1e9, "as in eq. 4.3, with the last norm's"
    yield Row(f"{name}, our model's count", "parameters_b", ours, row.parameters_b, 1, note=note)
    share, note = 100 * row.tflops / PEAK_TFLOPS, f"of the printed {row.tflops:g} teraFLOP/s"
    yield Row(name, PERCENT, share, row.percent_of_peak, 0, note=note, basis=Basis.FORMULA)
    whole, note = row.num_gpus * row.tflops, "of teraFLOP/s printed as whole numbers: within half of one"
    row_of_all = Row(f"{name}, all GPUs", "pflops", whole / 1e3, row.pflops, 1, note=note)
    yield replace(row_of_all, claim=Claim.WITHIN, basis=Basis.FORMULA)
    time_s = iteration_flops(*shape, row.batch_size) / (whole * 1e12)
    yield Row(f"{name}, eq. 4.2", "iteration_s", time_s, digits=2)


def _table_4_2_rows(_: CaseOptions, case: Example | Sequence[TrainingTime]) -> Iterator[Row]:
    if isinstance(case, Example):
        flops_per_s = case.num_gpus * case.tflops * 1e12
        ours = days_by_parameters(case.parameters_b * 1e9, case.tokens_b * 1e9, flops_per_s)
        yield Row(f"{case.parameters_b:g} billion, {case.num_gpus} GPUs, eq. 4.4", "days", ours, case.days, 0)
        return
    note = "without the attention's core and the output layer"
    for row in case:
        shape, label = SHAPES[row.parameters_b], f"{row.scheme}, {row.parameters_b:g} billion"
        label, flops_per_s = f"{label}, {row.num_gpus} GPUs", row.num_gpus * row.tflops * 1e12
        iterations = TOKENS / (row.batch_size * SEQUENCE_LENGTH)
        time_s = iterations * iteration_flops(*shape, row.batch_size) / flops_per_s
        yield Row(f"{label}, eq. 4.2", "days", time_s / _SECONDS_OF_DAY, row.days, 0)
        short = days_by_parameters(parameters(*shape), TOKENS, flops_per_s)
        yield Row(f"{label}, eq. 4.4", "days", short, row.days, 0, note=note, claim=Claim.TREND)


def _figure_4_6_rows(_: CaseOptions, case: tuple[int, int]) -> Iterator[Row]:
    """Yield a row for each data-parallel size d: p = n / d stages run b' / d micro-batches."""
    n, batch = case
    for d in (2**i for i in range(min(n, batch).bit_length())):
        ours = bubble_over_ideal(one_f_one_b(v_shape(n // d), batch // d))
        yield Row(f"d={d}", "bubble_over_ideal", ours, (n - d) / batch, series=f"n = {n}, b' = {batch}", at=d)


def _figure_4_6_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    falling = [all(b < a for a, b in itertools.pairwise(numbers(curve))) for curve in grouped(rows).values()]
    says = "the bubble shrinks with more data parallelism"
    yield Trend(says, all(falling), f"on all {len(falling)} curves")


ITEMS = (
    described(
        "dissertation_table4_1",
        TABLE_4_1,
        _table_4_1_rows,
        small=CaseOptions(("1.7b", "145.6b")),
    ),
    described(
        "dissertation_table4_2",
        {
            "zero3": [row for row in TABLE_4_2 if row.scheme == "ZeRO-3"],
            "ptd_p": [row for row in TABLE_4_2 if row.scheme == "PTD-P"],
            **EXAMPLES,
        },
        _table_4_2_rows,
        small=CaseOptions(("ptd_p",)),
    ),
    described(
        "dissertation_figure4_6",
        {f"n{n}_b{batch}": (n, batch) for n, batch in FIGURE_4_6},
        _figure_4_6_rows,
        conclude=_figure_4_6_trends,
        draw=lambda rows: draw_curves(
            rows,
            "data-parallel size d",
            "idle time / computing",
            "Size of the bubble",
            panel=lambda _: "1F1B",
        ),
        small=CaseOptions(("n32_b32",)),
    ),
)
