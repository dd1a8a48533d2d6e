"""Time by cause: it adds up to the measured time, and each cause that is made has its part."""

from __future__ import annotations

import pytest
from made_up_job_traces import Time, table

from schedsearch.replay.causes import CAUSES, causes_of
from schedsearch.replay.job import Job, job_of
from schedsearch.replay.pipeline import job_pipeline


def parts(job: Job) -> dict[str, float]:
    rows = causes_of(job, job_pipeline(job))
    assert sum(row.time_ms for row in rows[:-1]) == pytest.approx(rows[-1].time_ms)
    return {row.cause: row.time_ms for row in rows}


def even(step: int, replica: int, kind: str, block: int, n: int) -> float:
    return 0.010 if kind == "F" else 0.020


MADE: dict[str, Time] = {
    "imbalance": lambda *of: even(*of) * (2 if of[3] == 1 else 1),
    "device": lambda *of: even(*of) * (1.5 if of[1] == 1 else 1),
    "micro-batch": lambda *of: even(*of) * (3 if of[4] == (of[0] + of[1]) % 4 else 1),
    "jitter": lambda *of: even(*of) * (1 + (3 * of[0] + 5 * of[3] + 4 * of[4] + (of[2] == "F")) % 7 / 7),
}


def test_1f1b_of_equal_blocks_has_its_formulas_bubble() -> None:
    part_ms = parts(job_of(table(even, stages=4, number=8)))
    assert part_ms["ideal"] == pytest.approx(8 * 30)
    assert part_ms["bubble of the order"] == pytest.approx(3 * 30)
    assert part_ms["iteration"] == pytest.approx(11 * 30)
    assert all(abs(part_ms[name]) < 1e-6 for name in CAUSES.values())


@pytest.mark.parametrize("cause", [*MADE])
def test_a_cause_that_is_made_has_the_largest_part(cause: str) -> None:
    part_ms = parts(job_of(table(MADE[cause], stages=2, replicas=2, steps=range(10))))
    others = [name for name in CAUSES.values() if name != CAUSES[cause]]
    assert part_ms[CAUSES[cause]] > 2 * max(abs(part_ms[name]) for name in others)


def test_messages_late_receives_and_gaps_are_told_apart() -> None:
    given, spans = table(even, number=1, steps=range(5), message=0.002), []
    for span in given.spans:
        late_ms = 10 if span.iteration == 3 and (span.stage, span.kind) != (0, "F") else 0
        gap_ms = 3 if span.kind == "B" else 0
        spans.append(
            span._replace(start_ms=span.start_ms + late_ms + gap_ms, end_ms=span.end_ms + late_ms + gap_ms)
        )
    part_ms = parts(job_of(given._replace(spans=spans)))
    assert part_ms["messages"] == pytest.approx(2 * 2)
    assert part_ms["late receives"] == pytest.approx(10 / 5)
    assert part_ms["gaps between blocks"] == pytest.approx(3)
