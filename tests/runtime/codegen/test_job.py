"""The job beside the scripts: read back, told from others by its hash, and refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from one_line_errors import raises_line
from small_runs import SYNTHETIC, with_hidden_forms

from placements import Block, Kind, Placement
from placements.shapes import SHAPES, v_shape
from runtime.clocks.periodic_clocks import ScriptClocks
from runtime.codegen.codegen import generate
from runtime.codegen.job import JobError, ScriptJob, read_job, write_job
from runtime.codegen.script import read_scripts
from runtime.program.calls import ScriptError
from runtime.program.lower import lower
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.schedule import Schedule

EACH = {"F0": [1410] * 4, "F1": [1395] * 4, "B1": [1380] * 4, "B0": [1410, 1395, 1380, 1410]}


def generated(schedule: Schedule, clocks: ScriptClocks, folder: Path) -> ScriptJob:
    generate(with_hidden_forms(lower(schedule)), clocks, SYNTHETIC, folder, versions={"torch": "2.13.0"})
    return read_job(folder / "job.json")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_job_reads_back(shape: str, tmp_path: Path) -> None:
    placement = SHAPES[shape](4)
    clocks = {block.name: [1410, 1395, 1380] for block in placement.blocks}
    job = generated(gpipe(placement, 3), clocks, tmp_path)
    assert (job.placement, job.num_micro_batches) == (placement, 3)
    assert (job.model_data, job.versions) == (SYNTHETIC, {"torch": "2.13.0"})
    assert write_job(job, tmp_path / "again.json") == job.hash
    assert read_job(tmp_path / "again.json") == job


def test_memory_by_device_and_odd_times_read_back_to_the_same_hash(tmp_path: Path) -> None:
    blocks = (
        Block("F0", Kind.F, tuple(range(12)), 3, memory=tuple(range(12))),
        Block("B0", Kind.B, tuple(range(12)), 7, memory=tuple(-n for n in range(12)), after=("F0",)),
    )
    placement = Placement("wide", 12, blocks, tick_ms=1 / 3)
    assert generated(gpipe(placement, 2), {}, tmp_path).placement == placement


def test_the_hash_covers_all_but_the_scripts(tmp_path: Path) -> None:
    """Both schedules open the same channels, so either order is one of the same job, at any clocks."""
    placement = v_shape(2)
    first = generated(gpipe(placement, 4), EACH, tmp_path / "gpipe")
    slow = {name: [900] * 4 for name in EACH}
    assert generated(one_f_one_b(placement, 4), slow, tmp_path / "1f1b").hash == first.hash
    others = [
        first,
        replace(first, model_data={**SYNTHETIC, "seed": 1}),
        replace(first, placement=v_shape(2, backward_time=2)),
        replace(first, num_micro_batches=5),
        replace(first, channels=((0, 1),)),
        replace(first, least_micro_batches=2),
        replace(first, tensor_specs=()),
        replace(first, versions={"torch": "2.12.0"}),
    ]
    hashes = [write_job(job, tmp_path / "job.json") for job in others]
    assert len(set(hashes)) == len(others)


def test_a_job_that_is_not_the_scripts_is_refused(tmp_path: Path) -> None:
    job = generated(gpipe(v_shape(2), 4), {}, tmp_path)
    other = write_job(replace(job, model_data={**SYNTHETIC, "seed": 7}), tmp_path / "job.json")
    with pytest.raises(ScriptError) as caught:
        read_scripts(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/device_0.py: is of job '{job.hash}', but job.json beside it is '{other}'; "
        "generate the scripts again"
    )


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        place: Any = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def drop(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.pop(name)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (drop("placement"), "lacks the field 'placement'; add it"),
        (drop("hash"), "lacks the field 'hash'; add it"),
        (put("more", value=1), "has an unknown field 'more'; the fields are schema_version, hash"),
        (put("schema_version", value=2), "schema_version: 2 is not known; write 1"),
        (put("hash", value=7), "hash: 7 is not twelve hexadecimal digits; generate the scripts again"),
        (put("hash", value="0" * 12), "hash: '000000000000' does not match the rest, '"),
        (put("model", value=[]), "model: [] is not a mapping of a model's options"),
        (put("num_micro_batches", value=True), "num_micro_batches: True is not a whole number from 1 on"),
        (put("loops", value={"least_micro_batches": 1}), "loops: lacks the field 'micro_batches_per_round'"),
        (put("channels", value=None), "channels: None is not a list of channels"),
        (put("channels", 0, value=[0]), "channels[0]: [0] is not a (source, target); give two devices"),
        (put("channels", 0, 1, value=2), "channels[0][1]: 2 is not a device from 0 to 1"),
        (put("tensor_specs", value=[[]]), "has 1 entries; give one for each of "),
        (put("tensor_specs", 1, 0, "shape", value=4), "tensor_specs[1][0].shape: 4 is not a list of sizes"),
        (put("versions", "torch", value=2), "versions.torch: 2 is not text"),
        (put("placement", value=3), "placement"),
        (put("placement", "num_gpus", value=[2, 2]), "placement.num_gpus: is [2, 2], but a program is for"),
    ],
)
def test_a_wrong_field_is_named_with_the_remedy(
    spoil: Callable[[dict[str, Any]], None], message: str, tmp_path: Path
) -> None:
    generated(one_f_one_b(v_shape(2), 4), EACH, tmp_path)
    data = json.loads((tmp_path / "job.json").read_text())
    spoil(data)
    (tmp_path / "job.json").write_text(json.dumps(data))
    with raises_line(JobError, f"{tmp_path}/job.json: ", has=message):
        read_scripts(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"hash": 1, "hash": 2}', "\udcff"])
def test_what_is_no_job_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(JobError, match="job.json: .*give the job.json written with the scripts"):
        read_job(path)
