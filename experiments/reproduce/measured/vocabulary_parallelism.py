"""Iterations of pipelines whose last stage has the output layer, in 1F1B of their measured stage times.

The file has a row for each run: times of every stage's forward and backward, and the iteration (Vocabulary
Parallelism, Yeung et al., 2025; its artifact's runs on one server). Transfers take no time here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

from experiments.reproduce.item import DataOptions, Row, described
from placements import Placement
from placements.forms.meaning import Meaning
from placements.forms.tables import csv_records
from placements.pieces import Piece, blocks_of
from placements.profiles.operating_point import ProfileError
from schedsearch.baselines import one_f_one_b

NUM_MICRO_BATCHES = 128
"""Micro-batches of each iteration in the artifact."""


class MeasuredIteration(NamedTuple):
    """A row of the file; numbers of stages have ``|`` between."""

    case: str
    forward_us: Annotated[tuple[float, ...], Meaning("forwards", "us", above=0, key="F_us_per_stage")]
    backward_us: Annotated[tuple[float, ...], Meaning("backwards", "us", above=0, key="B_us_per_stage")]
    iteration_ms: Annotated[float, Meaning("the iteration", "ms", above=0)]

    @property
    def placement(self) -> Placement:
        """The run's stages as a V-shape, in ticks of 1 us."""
        times = enumerate(zip(self.forward_us, self.backward_us, strict=True))
        pieces = [Piece(f"F{i}", (i,), (max(1, round(f)), max(1, round(b))), (1, -1)) for i, (f, b) in times]
        return Placement("v_shape", len(pieces), tuple(blocks_of(pieces)), tick_ms=1e-3)


def _cases(options: DataOptions) -> dict[str, MeasuredIteration]:
    path = options.file("measured_iterations.csv")
    rows = csv_records(path, "run", ProfileError, MeasuredIteration, others=True, once=("case",))
    for line, run in rows:
        if len(run.forward_us) != len(run.backward_us):
            raise ProfileError(
                f"{path}: line {line}, column B_us_per_stage: has {len(run.backward_us)} numbers for the "
                f"{len(run.forward_us)} stages of F_us_per_stage; give one for each"
            )
    return {run.case: run for _, run in rows}


def _rows(_: DataOptions, run: MeasuredIteration) -> Iterator[Row]:
    predicted_ms = run.placement.ms(one_f_one_b(run.placement, NUM_MICRO_BATCHES).makespan)
    yield Row("1F1B", "iteration_ms", predicted_ms, run.iteration_ms, 1)


_SMALL = DataOptions(("base_dp1_pp8_tp1_v256k_s2k",))

ITEMS = (described("vocabulary_parallelism", _cases, _rows, small=_SMALL),)
