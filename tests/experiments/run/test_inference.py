"""A run of an inference: its requests as planned and as measured, and what is refused."""

import json
from pathlib import Path

import pytest
from commands import refusal

ARRIVE = ("runtime.arrival_rate=20", "runtime.arrivals=fixed")


def test_a_run_measures_each_request(ran, tmp_path: Path) -> None:
    small = ("runtime.hidden_size=8", "runtime.num_heads=2", "runtime.sequence_length=8")
    done = ran(
        *("run", "placement=v_shape", "placement.num_devices=2", "placement.inference=true", *ARRIVE, *small),
        *("search.num_micro_batches=4", "runtime.launcher=fork", f"hydra.run.dir={tmp_path}"),
    )
    data = json.loads((tmp_path / "requests.json").read_text())
    planned, again, measured = data["rows"]
    assert (data["arrival_rate_per_s"], data["arrivals"]) == (20, "fixed")
    assert planned["arrived_ms"] == [[0, 50, 100, 150]] * 2  # the first of three iterations is left out
    assert planned["max_rate_per_s"] == 100 and planned["latency_ms"]["p99"] == 20
    for came, began, ended in zip(*(measured[f"{x}_ms"] for x in ("arrived", "began", "ended")), strict=True):
        assert all(b >= a and e > b for a, b, e in zip(came, began, ended, strict=True))
        assert [each - came[0] for each in came] == pytest.approx([0, 50, 100, 150])
    assert again["latency_ms"]["p50"] <= measured["latency_ms"]["p50"]
    assert "latency p95" in done.stdout + done.stderr
    assert "planned, at measured times" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["placement=v_shape"], "runtime.arrival_rate: v_shape trains (B3 is no forward block)"),
        (["placement=v_shape", "placement.inference=true", "runtime.launcher=in_process"], "take turns"),
        (["placement=v_shape", "placement.inference=true", "runtime.timeout_s=0.7"], "comes after 0.75 s"),
    ],
)
def test_requests_that_cannot_come_are_refused(overrides: list[str], message: str, tmp_path: Path) -> None:
    assert message in refusal("run", [*overrides, *ARRIVE, "search.num_micro_batches=16"], tmp_path / "out")
