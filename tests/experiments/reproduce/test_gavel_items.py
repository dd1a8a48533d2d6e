"""Items of Gavel's evaluation: their parts against values by hand, and whole items on a small table."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from places import SHARED_DATA

from experiments.config.options import OptionError
from experiments.reproduce.catalogue import ITEMS as EVERY
from experiments.reproduce.gavel.study import (
    JOB_TYPES,
    PHYSICAL_THROUGHPUTS,
    THROUGHPUTS,
    Factor,
    FactorSpread,
    cluster_of,
    gavel_throughputs,
    gavel_types,
)
from experiments.reproduce.item import Item
from schedsearch.cluster.generator import GeneratorOptions, generated
from schedsearch.cluster.jobs import Job

GAVEL = SHARED_DATA / "gavel"

ITEMS = [EVERY[name] for name in EVERY if name.startswith("gavel")]

BY_NAME = {item.name: item for item in ITEMS}

RATES = {"v100": (4.0, 6.0), "p100": (2.0, 5.0), "k80": (1.0, 4.0)}
"""Steps per second of two types of jobs."""

TYPES = ("ResNet-50 (batch size 64)", "A3C")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Write a table of two types in Gavel's form; a pair has six tenths of its throughput each."""
    table = {
        gpu_type: {
            f"('{job_type}', {gpus})": {"null": rate * gpus}
            | {f"('{other}', {gpus})": [0.6 * rate * gpus, 0.6 * beside * gpus] for other, beside in both}
            for gpus in (1, 2, 4, 8)
            for both in [[*zip(TYPES, rates, strict=True)]]
            for job_type, rate in both
        }
        for gpu_type, rates in RATES.items()
    }
    (tmp_path / THROUGHPUTS).write_text(json.dumps(table), encoding="utf-8")
    (tmp_path / PHYSICAL_THROUGHPUTS).write_text(json.dumps(table), encoding="utf-8")
    traces = tmp_path / "traces/physical"
    traces.mkdir(parents=True)
    for name, between_s in (("max_min_fairness", 600), ("minimize_makespan", 0)):
        jobs = [(TYPES[n % 2], *"---0", "50000", "1", "1", "-1", str(between_s * n)) for n in range(60)]
        (traces / f"{name}.trace").write_text("".join("\t".join(job) + "\n" for job in jobs))
    rows = [f"{number},{job_type},1" for number, job_type in enumerate(TYPES)]
    (tmp_path / JOB_TYPES).write_text("\n".join(["index,job_type,may_be_distributed", *rows]) + "\n")
    return str(tmp_path)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_an_item_is_made_on_any_table(item: Item, folder: str) -> None:
    options = replace(item.small, data=folder)
    if hasattr(options, "jobs"):
        options = replace(options, jobs=10)
    rows = item.rows(options)
    assert {row.case for row in rows} == {*item.cases(options)}
    assert all(row.ours is not None and math.isfinite(row.ours) for row in rows)
    assert item.trends(rows) and all(trend.shown_by for trend in item.trends(rows))
    assert item.draw is None or item.draw(rows).axes


def test_a_wrong_option_is_one_line(folder: str, tmp_path: Path) -> None:
    item = BY_NAME["gavel_las"]
    with pytest.raises(OptionError, match=f"^data: has no value; give the folder of {THROUGHPUTS}"):
        item.cases(item.options())
    with pytest.raises(OptionError, match=rf" has no {THROUGHPUTS}; give the folder that has it$"):
        item.cases(item.options(data=str(tmp_path / "none")))
    with pytest.raises(OptionError, match=r"^seeds\[1\]: -1 is not a whole number of 0 or more"):
        item.cases(item.options(data=folder, seeds=(0, -1)))
    with pytest.raises(OptionError, match=r"^jobs: 4 is not a whole number of 5 or more"):
        item.cases(item.options(data=folder, jobs=4))


def test_a_published_factor_holds_within_its_band_only() -> None:
    """Above 1 is not enough: finish-time fairness has half of the dissertation's factor."""
    more = Factor("average_jct_h", "a", "b")
    assert more.holds(FactorSpread(1.5, 1.2, 1.9, 3)) and not more.holds(FactorSpread(1.5, 0.9, 2.5, 3))
    factor = Factor("average_jct_h", "agnostic", "aware", 3.0)
    assert factor.conclusion == "average_jct_h of agnostic over aware: above 1, printed 3"
    assert factor.holds(FactorSpread(3.5, 1.2, 9.0, 3))
    for mean, low, high in ((1.56, 1.26, 1.94), (4.0, 3.0, 5.0), (2.5, 0.9, 6.0)):
        assert not factor.holds(FactorSpread(mean, low, high, 3))


@pytest.mark.skipif(not GAVEL.exists(), reason="needs Gavel's data")
def test_an_agnostic_policy_can_serve_4_8_jobs_per_hour_and_no_more() -> None:
    """GPUs that 5000 jobs keep busy where each runs on all types that it can alike; 108 are there."""
    throughputs, types = gavel_throughputs(GAVEL / THROUGHPUTS), gavel_types(GAVEL / JOB_TYPES)

    def gpu_s(job: Job) -> float:
        rates = [throughputs.rate(job.type, job.scale_factor, gpu) for gpu in RATES]
        return job.scale_factor * job.steps / fmean(rate for rate in rates if rate > 0)

    def busy_gpus(jobs_per_hour: float, multi_gpu: bool = False) -> float:
        options = GeneratorOptions(seed=0, lam_s=3600 / jobs_per_hour, num_jobs=5000, multi_gpu=multi_gpu)
        jobs = [*generated(types, throughputs, options)]
        return sum(map(gpu_s, jobs)) / jobs[-1].arrival_s

    whole = cluster_of(36).num_gpus
    assert busy_gpus(4.0) < 0.86 * whole
    assert busy_gpus(4.8) == pytest.approx(whole, rel=0.03)
    assert busy_gpus(5.6) > 1.13 * whole
    assert busy_gpus(2.4, multi_gpu=True) == pytest.approx(whole, rel=0.03)
    assert busy_gpus(2.6, multi_gpu=True) > 1.06 * whole
