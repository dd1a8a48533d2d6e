"""``placement.num_slices`` and ``sequence_slices``: sequences cut into slices, on the command line."""

from __future__ import annotations

from pathlib import Path

from commands import refusal

from schedsearch.schedule_file import read_schedule
from schedsearch.validate import validate

GPT = [
    *("placement=gpt", "placement.arrangement=v_shape", "placement.num_devices=2", "placement.num_slices=4"),
    *("placement.num_layers=4", "placement.vocab_size=32000", "search.num_micro_batches=3"),
]

STAGES = """
stages:
- {forward_ms: 10, backward_ms: 20, activation_mib: 100}
- {forward_ms: 10, backward_ms: 20, activation_mib: 100}
memory_mib: 250
sequence_slices: {num_slices: 4, attention_share: 0.4}
"""


def test_a_gpt_in_slices_has_the_times_of_its_cost_model(ran, tmp_path: Path) -> None:
    ran("search", *GPT, "schedule=seq_one_f_one_b")
    placement = validate(read_schedule(tmp_path / "out" / "schedule.json")).placement
    times = [placement.by_name[f"F0s{i}"].time for i in range(4)]
    assert placement.num_slices == 4 and times == sorted(times) and times[0] < times[3]


def test_stages_say_how_sequences_are_cut(ran, tmp_path: Path) -> None:
    path = tmp_path / "stages.yaml"
    path.write_text(STAGES)
    options = ["placement=stages", f"placement.path={path}", "placement.shape=v_shape"]
    ran("search", *options, "schedule=seq_one_f_one_b")
    schedule = validate(read_schedule(tmp_path / "out" / "schedule.json"))
    assert schedule.placement.name == "v_shape in 4 slices"


def test_what_cannot_be_cut_is_refused_in_one_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "placement.num_slices: 4 slices are costed for arrangement=v_shape" in refusal(
        "search", [*GPT, "placement.arrangement=m_shape"], out
    )
    assert "placement.num_slices: 0 is not a whole number" in refusal(
        "search", [*GPT, "placement.num_slices=0"], out
    )
    assert "placement.partition: 'halves' is not known" in refusal(
        "search", [*GPT, "placement.partition=halves"], out
    )
    assert "placement.recompute: true keeps no keys and values" in refusal(
        "search", [*GPT, "placement.recompute=true"], out
    )
    refused = refusal("search", ["placement=v_shape", "schedule=seq_one_f_one_b"], out)
    assert "seq1f1b needs" in refused.lower()
    path = tmp_path / "stages.yaml"
    path.write_text(STAGES.replace("0.4", "1.4"))
    assert "sequence_slices.attention_share: 1.4" in refusal(
        "search", ["placement=stages", f"placement.path={path}"], out
    )
    options = [*GPT, "schedule=seq_one_f_one_b", "runtime.model=mt5"]
    assert "cannot run slices of a sequence" in refusal("run", options, out)
