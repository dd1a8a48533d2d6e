"""The runs of ``examples/runs``, as README predicts them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest


def test_runs_of_mlperf_follow_from_one_of_them(ran: Any, tmp_path: Path) -> None:
    """The one that is given is right; the others are nearly so, with other GPUs and another model."""
    ran("predict", "data=examples/runs", "calibrate=llama_h100_512")
    with (tmp_path / "out/predictions.csv").open(newline="") as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    shares = {name: float(row["predicted_ms"]) / float(row["measured_ms"]) for name, row in rows.items()}
    assert shares["llama_h100_512"] == pytest.approx(1, rel=1e-3)
    assert shares["llama_h100_2048"] == pytest.approx(1, abs=0.03)
    assert shares["gpt3_h100_256"] == pytest.approx(1, abs=0.05)


MEGATRON = """run,layers,hidden,heads,vocab,gpu,gpus,tp,pp,vp,micro_batch,global_batch,sequence_length,\
precision,attention,overlap,framework,zero,recompute,sequence_parallel
all again,105,20480,128,51200,a100,2240,8,35,3,1,2240,2048,fp16,fused,false,megatron_local,0,full,false
cores again,105,20480,128,51200,a100,2240,8,35,3,1,2240,2048,fp16,fused,false,megatron_local,0,selective,true
"""


def test_a_gpt_of_530_billion_reaches_the_published_utilisation(ran: Any, tmp_path: Path) -> None:
    """42.1 % with all computed again, 54.2 % with the cores (Korthikanti et al., 2022, abstract)."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "megatron.csv").write_text(MEGATRON)
    ran("predict", f"data={tmp_path / 'runs'}")
    with (tmp_path / "out/predictions.csv").open(newline="") as file:
        percents = [float(row["mfu_percent"]) for row in csv.DictReader(file)]
    assert percents == pytest.approx([42.1, 54.2], rel=0.05)
