"""Generated jobs: the same as from Gavel's generator, and their averages."""

from __future__ import annotations

import csv
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from cluster.small_clusters import GAVEL, gavel_throughputs, needs_gavel, throughputs_of
from one_line_errors import raises_line

from schedsearch.cluster.generator import GeneratorOptions, generated
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.throughput_file import read_job_types
from schedsearch.cluster.jobs import Job

TYPES = {"one": True, "two": False}
RATES = throughputs_of({"one": {"v100": 2.0}, "two": {"v100": 5.0}}, (1, 2, 4, 8))


def drawn(count: int = 20000, **options: object) -> list[Job]:
    return [*islice(generated(TYPES, RATES, GeneratorOptions(**options)), count)]  # type: ignore[arg-type]


def duration_s(job: Job) -> float:
    return job.steps / RATES.rate(job.type, job.scale_factor, "v100")


@needs_gavel
def test_the_first_jobs_are_gavels() -> None:
    jobs = generated(
        read_job_types(GAVEL / "job_types.csv"), gavel_throughputs(), GeneratorOptions(seed=42, lam_s=9000)
    )
    with (GAVEL / "first_jobs_seed42_lam9000.csv").open() as file:
        for row, job in zip(csv.DictReader(file), jobs, strict=False):
            assert (job.name, job.type) == (row["job"], row["job_type"])
            assert (job.arrival_s, job.steps) == (float(row["arrival_s"]), float(row["total_steps"]))


def test_arrivals_are_poisson_and_static_ones_at_once() -> None:
    gaps = np.diff([job.arrival_s for job in drawn(lam_s=100.0)])
    assert gaps.mean() == pytest.approx(100, rel=0.03)
    assert gaps.std() == pytest.approx(100, rel=0.05)
    static = drawn(lam_s=0.0, num_jobs=7)
    assert [job.arrival_s for job in static] == [0.0] * 7


def test_gpus_weights_and_slos_have_their_parts() -> None:
    jobs = drawn(multi_gpu=True, priorities=True, slos=True)
    parts = Counter(job.scale_factor for job in jobs)
    for gpus, part in ((1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05)):
        assert parts[gpus] / len(jobs) == pytest.approx(part, abs=0.012)
    assert {job.type for job in jobs if job.scale_factor > 1} == {"one"}
    assert sum(job.weight == 5 for job in jobs) / len(jobs) == pytest.approx(0.2, abs=0.012)
    factors = Counter(round(job.slo_s / duration_s(job), 9) for job in jobs)
    assert {*factors} == {1.2, 2.0, 10.0}
    assert factors[1.2] / len(jobs) == pytest.approx(0.33, abs=0.015)


def test_options_do_not_change_what_others_draw() -> None:
    """Times have their own generator, SLOs too; and the number of GPUs is drawn in any case."""
    plain, with_slos = drawn(50), drawn(50, slos=True, lam_s=10.0)
    assert [(job.type, job.steps) for job in plain] == [(job.type, job.steps) for job in with_slos]
    assert drawn(50) == plain
    assert drawn(50, seed=1) != plain


def test_the_cost_studys_durations() -> None:
    jobs = drawn(num_jobs=500, lam_s=0.0, slos=True, durations_h=(12, 24, 48, 96, 192))
    days = Counter(round(duration_s(job) / 86400, 9) for job in jobs)
    assert {*days} == {0.5, 1.0, 2.0, 4.0, 8.0}
    assert len(jobs) == 500


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam_s": -1.0}, "lam_s: -1.0 is not a time"),
        ({"durations_h": (1.0, -2.0)}, "not numbers of hours above 0"),
        ({"reference": "a100"}, "'one' is not a type with a throughput on 1 a100"),
    ],
)
def test_wrong_options_are_one_line(options: dict[str, object], message: str) -> None:
    with raises_line(ClusterError, match=message):
        drawn(1, **options)
