"""Tables 4.1 and 4.2: parameters, operations and training days by the closed forms (eq. 4.2 to 4.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.reproduce.dissertation.figure import SOURCE
from experiments.reproduce.dissertation.published import (
    EXAMPLES,
    PEAK_TFLOPS,
    SEQUENCE_LENGTH,
    SHAPES,
    TABLE_4_1,
    TABLE_4_2,
    TOKENS_B,
    VOCABULARY,
    Example,
    TrainingTime,
    WeakScaling,
)
from experiments.reproduce.item import CaseOptions, Claim, Item, Row
from placements.models.chain import ModelShape
from placements.models.zoo import decoder

_SECONDS_OF_DAY = 86_400


def parameters(num_layers: int, hidden_size: int) -> float:
    """Return the parameters of a GPT (eq. 4.3).

    >>> round(parameters(96, 12288) / 1e9, 1)
    174.6
    """
    h, layers = hidden_size, num_layers
    return 12 * layers * h**2 * (1 + 13 / (12 * h) + (VOCABULARY + SEQUENCE_LENGTH) / (12 * layers * h))


def gpt(num_layers: int, hidden_size: int, num_heads: int) -> ModelShape:
    """Return the shape of a model of chapter 4."""
    return decoder(
        "gpt",
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        vocab_size=VOCABULARY,
        sequence_length=SEQUENCE_LENGTH,
    )


def iteration_flops(num_layers: int, hidden_size: int, batch_size: int) -> float:
    """Return the operations of an iteration that computes forwards twice (eq. 4.2)."""
    h, layers, s = hidden_size, num_layers, SEQUENCE_LENGTH
    return 96 * batch_size * s * layers * h**2 * (1 + s / (6 * h) + VOCABULARY / (16 * layers * h))


def days_by_iterations(
    num_layers: int, hidden_size: int, batch_size: int, tokens: float, flops_per_s: float
) -> float:
    """Return the days of training: the time of an iteration's operations by the number of iterations."""
    iterations = tokens / (batch_size * SEQUENCE_LENGTH)
    return iterations * iteration_flops(num_layers, hidden_size, batch_size) / flops_per_s / _SECONDS_OF_DAY


def days_by_parameters(num_parameters: float, tokens: float, flops_per_s: float) -> float:
    """Return the days of training by eq. 4.4, which leaves out the attention's core and the output layer."""
    return 8 * tokens * num_parameters / flops_per_s / _SECONDS_OF_DAY


def _table_4_1_rows(_: CaseOptions, row: WeakScaling) -> Iterator[Row]:
    name, shape = f"{row.parameters_b:g} billion", (row.num_layers, row.hidden_size)
    ours = parameters(*shape) / 1e9
    yield Row(f"{name}, eq. 4.3", "parameters_b", ours, row.parameters_b, 1)
    ours, note = gpt(*shape, row.num_heads).num_parameters / 1e9, "as in eq. 4.3, with the last norm's"
    yield Row(f"{name}, our model's count", "parameters_b", ours, row.parameters_b, 1, note=note)
    share, note = 100 * row.tflops / PEAK_TFLOPS, f"of the printed {row.tflops:g} teraFLOP/s"
    yield Row(name, "percent_of_peak", share, row.percent_of_peak, 0, note=note)
    whole, note = row.num_gpus * row.tflops, "of teraFLOP/s printed as whole numbers: within half of one"
    yield Row(f"{name}, all GPUs", "pflops", whole / 1e3, row.pflops, 1, note=note, claim=Claim.WITHIN)
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
        tokens, flops_per_s = TOKENS_B * 1e9, row.num_gpus * row.tflops * 1e12
        by_iterations = days_by_iterations(*shape, row.batch_size, tokens, flops_per_s)
        yield Row(f"{label}, {row.num_gpus} GPUs, eq. 4.2", "days", by_iterations, row.days, 0)
        short = days_by_parameters(parameters(*shape), tokens, flops_per_s)
        label = f"{label}, {row.num_gpus} GPUs, eq. 4.4"
        yield Row(label, "days", short, row.days, 0, note=note, claim=Claim.TREND)


TABLES = (
    Item(
        "dissertation_table4_1",
        SOURCE,
        "Table 4.1",
        "Parameters, share of the peak and throughput of ten GPTs",
        Claim.EXACT,
        TABLE_4_1,
        _table_4_1_rows,
        small=CaseOptions(("1.7b", "145.6b")),
        tolerance=0.005,
        because=(
            "Parameters and shares of the peak are exact. Throughputs are measurements, from which the rest "
            "is computed; that of all GPUs is within 0.5 %, since each GPU's is printed as a whole number."
        ),
    ),
    Item(
        "dissertation_table4_2",
        SOURCE,
        "Table 4.2",
        "Days of training with PTD-P and ZeRO-3",
        Claim.WITHIN,
        {
            "zero3": [row for row in TABLE_4_2 if row.scheme == "ZeRO-3"],
            "ptd_p": [row for row in TABLE_4_2 if row.scheme == "PTD-P"],
            **EXAMPLES,
        },
        _table_4_2_rows,
        small=CaseOptions(("ptd_p",)),
        margin=1.0,
        because=(
            "The measured teraFLOP/s are printed as whole numbers: days are within one of the published. Eq. "
            "4.4 leaves out terms that eq. 4.2 has, and is 2 to 4 % lower."
        ),
    ),
)
