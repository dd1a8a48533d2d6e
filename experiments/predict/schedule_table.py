"""Tables of schedules: one model under several schedules, by throughput, beside our schedules of that name.

The form is that of Primus' comparison of pipeline schedules; see `docs/commands/predict.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

from experiments.predict.measured_folder import MeasuredFolderError
from placements.cluster import read_cluster
from placements.forms.meaning import Meaning
from placements.forms.texts import csv_text
from placements.models.costing.options import CostOptions
from placements.models.memory import Framework
from placements.models.zoo import read_model
from placements.planners.hybrid.uniform import Degrees, Layout
from schedsearch.baselines import NEEDS
from schedsearch.planning.uniform_run import UniformRun

COLUMNS = (
    *("model", "gpu", "pp", "schedule", "our_schedule"),
    *("measured_tokens_per_s_per_gpu", "predicted_tokens_per_s_per_gpu", "note"),
)
"""Columns of the table that is written."""

NEAR = 0.01
"""Difference of two measured throughputs below which their order does not count."""

MICRO_BATCHES_PER_STAGE = 4
"""Micro-batches for each stage where a table does not say how many there are; assumed."""

_NAMES = {
    "1f1b": "one_f_one_b",
    "1f1b-interleaved": "interleaved_one_f_one_b",
    "zbb": "zb_h1",
    "zbv": "zb_v",
    "v-half": "v_half",
    "v-min": "v_min",
}
"""Our schedules by the names of Primus, whose zero-bubble one holds as much as 1F1B."""


@dataclass(frozen=True)
class ScheduleRow:
    """A row of a table of schedules."""

    model: Annotated[str, Meaning("name of a model of `schedsearch plan model=all`")]
    gpu: Annotated[str, Meaning("name of a GPU, such as b200")]
    pp: Annotated[int, Meaning("stages, each on one GPU", min=1)]
    schedule: Annotated[str, Meaning("name of a schedule, as Primus or `schedsearch compare` has it")]
    measured: Annotated[
        float, Meaning("measured tokens/s of a GPU", "tokens/s", above=0, key="tokens_per_s_per_gpu")
    ]
    vpp: Annotated[int, Meaning("chunks of a stage", min=1)] = 1
    num_micro_batches: Annotated[
        int | None, Meaning("micro-batches of an iteration; empty: 4 for each stage, assumed", min=1)
    ] = None
    micro_batch: Annotated[int, Meaning("samples of a micro-batch", min=1)] = 1
    sequence_length: Annotated[int | None, Meaning("tokens of a sample; empty: the model's own", min=1)] = (
        None
    )

    @property
    def our_schedule(self) -> str:
        """Name of our schedule.

        Raises:
            MeasuredFolderError: There is none.
        """
        name = _NAMES.get(self.schedule.lower(), self.schedule)
        if name not in NEEDS:
            raise MeasuredFolderError(
                f"schedule: {self.schedule!r} is not known; use one of {', '.join([*_NAMES, *NEEDS])}"
            )
        return name

    def run(self, framework: Framework) -> UniformRun:
        """Return the row as it is modelled.

        Raises:
            ValueError: A name is not known, or a number does not divide.
        """
        name = self.our_schedule
        # A chain of whole stages has one chunk each, whatever a table has of chunks.
        chunks = 1 if NEEDS[name][0] == "v_shape" else self.vpp
        sizes = {} if self.sequence_length is None else {"sequence_length": self.sequence_length}
        model = read_model(self.model, **({"precision": "bf16", "causal": True} | sizes))
        number = self.num_micro_batches or MICRO_BATCHES_PER_STAGE * self.pp
        layout = Layout(Degrees(pipeline=self.pp, chunks=chunks), self.micro_batch, number)
        options = CostOptions(precision=model.precision, framework=framework)
        return UniformRun(model, read_cluster(f"{self.gpu}_{self.pp}"), layout, options, schedule_name=name)


@dataclass(frozen=True)
class PredictedSchedule:
    """A row and our throughput.

    Attributes:
        row: The row, with what was measured.
        predicted: Predicted tokens/s of a GPU; None where it cannot be, as the note says.
        note: Why there is no prediction, or what was assumed.
    """

    row: ScheduleRow
    predicted: float | None
    note: str


def predict_schedule(row: ScheduleRow, framework: Framework) -> PredictedSchedule:
    """Predict one row; where it cannot be, the note says why."""
    try:
        run = row.run(framework)
        iteration_ms = run.iteration_ms
    except ValueError as why:
        return PredictedSchedule(row, None, f"not predicted: {why}")
    tokens = run.layout.batch * run.model.num_tokens
    note = "" if row.num_micro_batches else f"{run.layout.num_micro_batches} micro-batches assumed"
    return PredictedSchedule(row, 1e3 * tokens / iteration_ms / row.pp, note)


def orders(predictions: Sequence[PredictedSchedule]) -> Iterator[str]:
    """Yield for each model, GPU and number of stages how many pairs come in the order of measurements.

    Pairs that were measured within `NEAR` of each other do not count.
    """
    groups: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for each in predictions:
        if each.predicted is not None:
            key = each.row.model, each.row.gpu, each.row.pp
            groups.setdefault(key, []).append((each.row.measured, each.predicted))
    for (model, gpu, stages), figures in groups.items():
        pairs = [sorted(pair) for pair in combinations(figures, 2)]
        apart = [(slow, fast) for slow, fast in pairs if fast[0] / slow[0] >= 1 + NEAR]
        right = sum(slow[1] < fast[1] for slow, fast in apart)
        yield f"{model} on {stages} {gpu}: {right} of {len(apart)} pairs of schedules in the measured order"


def schedules_to_csv(predictions: Sequence[PredictedSchedule]) -> str:
    """Return the table as CSV; empty where a figure cannot be predicted."""
    rows = []
    for each in predictions:
        row = each.row
        ours = _NAMES.get(row.schedule.lower(), row.schedule)
        predicted = "" if each.predicted is None else f"{each.predicted:.0f}"
        figures = [f"{row.measured:g}", predicted, each.note]
        rows.append([row.model, row.gpu, str(row.pp), row.schedule, ours, *figures])
    return csv_text(COLUMNS, rows)
