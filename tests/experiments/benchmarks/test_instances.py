from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from told import told

from experiments.benchmarks.frame import read_rows
from experiments.benchmarks.instances import verbs
from experiments.benchmarks.instances.answers import (
    AnswerError,
    Library,
)
from experiments.benchmarks.instances.instance_file import (
    FOLDER,
    Instance,
    InstanceError,
    read_group,
    read_instances,
)
from placements import Placement
from schedsearch.baselines import one_f_one_b, zb_h2
from schedsearch.device_span import device_spans
from schedsearch.proof.memory_need import require_capacity
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule
from schedsearch.starts.steady_state import steady_state

TINY = """
schema_version: 1
source: our own
instances:
- {name: v_2, micro_batches: 4, shape: v_shape, num_devices: 2, memory: 2, quick: true}
- name: v_3_split
  micro_batches: 4
  shape: v_shape
  num_devices: 3
  split_backward: true
  transfer: 1
  memory: 3
- name: one_device
  micro_batches: 3
  num_devices: 1
  blocks:
  - {name: F, kind: F, devices: 0, time: 2, memory: 1}
  - {name: B, kind: B, devices: 0, time: 3, memory: -1, after: [F]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def instances() -> list[Instance]:
    return read_instances()


@cache
def _require_capacity_of(placement: Placement) -> None:
    require_capacity(placement)


def test_every_instance_has_memory_for_a_micro_batch(instances: list[Instance]) -> None:
    for instance in instances:
        # Times do not matter for it; of the instances that differ in nothing else one is enough.
        blocks = tuple(replace(block, time=1) for block in instance.placement.blocks)
        placement = replace(instance.placement, name="", blocks=blocks, transfer=(), tick_ms=1.0)
        if placement.num_devices <= 8:  # the others have a schedule, see below; this takes long for many
            _require_capacity_of(placement)


def test_a_third_is_held_out_and_none_of_the_quick_ones(instances: list[Instance]) -> None:
    assert len(instances) >= 150
    assert {len(instance.name) <= 60 and bool(instance.source) for instance in instances} == {True}
    assert 1 / 4 < sum(instance.is_held_out for instance in instances) / len(instances) < 2 / 5
    quick = [instance for instance in instances if instance.is_quick]
    assert len(quick) == 20
    assert not [instance.name for instance in quick if instance.is_held_out]
    assert {instance.group for instance in quick} == {instance.group for instance in instances}


def test_the_table_is_of_the_instances_and_answers_of_random_graphs_still_hold(
    instances: list[Instance],
) -> None:
    library = Library()
    assert library.best.keys() == {instance.name for instance in instances}
    for instance in instances:
        assert library.best[instance.name].micro_batches == instance.num_micro_batches
        assert library.best[instance.name].best["makespan"]  # so there is memory for it
        if instance.group == "dags":  # a seed that gave another graph would show
            library.check(instance)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("num_devices: 2,", "num_devices: two,", r"instances\[0\] \(v_2\).num_devices: 'two' is not a whole"),
        (
            "shape: v_shape, num_devices: 2",
            "shape: u_shape",
            "shape: 'u_shape' is not known; use one of v_shape",
        ),
        ("num_devices: 2,", "depth: 2,", r"\(v_2\): has an unknown field 'depth'; the fields are name"),
        ("name: v_2,", "name: V 2,", "name: 'V 2' is not a name; use small letters"),
        ("memory: 2,", "times: {F: [1, 2, 3]},", "there is no block 'F2'; give a time for each stage"),
        ("transfer: 1", "transfer: -1", r"\(v_3_split\).transfer: -1 is not a time"),
        (
            "memory: -1",
            "memory: 0",
            r"instances\[2\] \(one_device\).blocks: one micro-batch holds 1 of memory",
        ),
        ("source: our own", "", r"\(v_2\).source: '' is not a source; say where the times come from"),
        ("name: v_3_split", "name: v_2", "the name 'v_2' is used in tiny too; rename one"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(folder: Path, old: str, new: str, message: str) -> None:
    path = folder / "tiny.yaml"
    path.write_text(TINY.replace(old, new, 1), encoding="utf-8")
    with told(InstanceError, f"{path}: ", match=message):
        read_instances([path])


def search(folder: Path, *arguments: str) -> int:
    output = str(folder / "results.json")
    return verbs.main(["--folder", str(folder), "search", "--output", output, *arguments])


def test_a_search_keeps_what_is_better(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert search(folder, "--work", "5", "--update", "--workers", "2") == 0
    rows = {row.case: row.figures for row in read_rows(folder / "results.json")}
    assert list(rows) == ["v_2", "v_3_split", "one_device"]
    assert {name: figures["better"] for name, figures in rows.items()} == dict.fromkeys(
        rows, "period, makespan, device_span"
    )
    best = {
        row["instance"]: row for row in csv.DictReader((folder / "best_known.csv").open(encoding="utf-8"))
    }
    assert {name: row["best_period"] for name, row in best.items()} == {
        "v_2": "4",
        "v_3_split": "11/3",
        "one_device": "5",
    }
    assert best["one_device"]["best_makespan"] == best["one_device"]["best_device_span"] == "15"
    assert best["one_device"]["status"] == "OPTIMAL"
    assert search(folder, "v_2", "--work", "5", "--without", "annealing") == 0
    (row,) = read_rows(folder / "results.json")
    assert row.part.startswith("tiny") and row.figures["period_gap"] == row.figures["makespan_gap"] == 0
    assert verbs.main(["--folder", str(folder), "check"]) == 0
    assert "3 instances: every stored answer is valid" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--limit=-3", "--limit: -3 is not a positive number"),
        ("--work=nan", "--work: nan is not a positive number"),
        ("--workers=0", "--workers: 0 is not a positive number"),
        ("--seeds=0", "--seeds: 0 is not a positive number"),
        ("no_such", "name: 'no_such' is no group or instance; the groups are tiny"),
    ],
)
def test_a_wrong_option_is_one_line_and_writes_nothing(
    option: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        search(folder, option)
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {message}")
    assert not (folder / "results.json").exists()


@pytest.fixture
def v_2(folder: Path) -> Instance:
    return read_group(folder / "tiny.yaml")[0]


def offer(folder: Path, instance: Instance, *found: Schedule | Repetend, **bound: Fraction) -> list[str]:
    return Library(folder).offer(instance, found, bound, 1.0, "1")


def _shortened(answers: dict[str, Any]) -> None:
    answers["v_2"]["period"]["period"] = 3


def _reordered(answers: dict[str, Any]) -> None:
    orders = answers["v_2"]["makespan"]["orders"]
    orders[1] = orders[1].replace("F1 B1", "B1 F1", 1)


def _lost(answers: dict[str, Any]) -> None:
    del answers["v_2"]["device_span"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_shortened, "v_2: period: the answer is wrong: .* starts at"),
        (_reordered, "v_2: makespan: the answer is wrong: .* of the devices make a cycle; remove it"),
        (_lost, "v_2: device_span: the stored answer reaches None, and best_known.csv says"),
    ],
)
def test_a_wrong_stored_answer_is_refused(
    folder: Path, v_2: Instance, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    schedule = one_f_one_b(v_2.placement, 4)
    repetend = steady_state(one_f_one_b(v_2.placement, 12), 2)
    assert repetend is not None
    offer(folder, v_2, repetend, schedule)
    path = folder / "answers" / "tiny.json.gz"
    answers = json.loads(gzip.decompress(path.read_bytes()))
    change(answers)
    path.write_bytes(gzip.compress(json.dumps(answers).encode()))
    with pytest.raises(AnswerError, match=message):
        Library(folder).check(v_2)


def test_the_device_span_of_zb_h2_is_the_published_one() -> None:
    """GPT-1.5B, 8 stages, 24 micro-batches: 0.1083, by m(F + B + W) + (p - 1)(F + B + 2 transfer - 2 W)."""
    (instance,) = [
        each for each in read_group(FOLDER / "zero_bubble.yaml") if each.name == "v_8x24_gpt_1b_2p"
    ]
    span = int(device_spans(zb_h2(instance.placement, 24)).max())
    assert span == 24 * (18522 + 18086 + 9337) + 7 * (18522 + 18086 + 2 * 601 - 2 * 9337)
    assert round(1 - 24 * (18522 + 18086 + 9337) / span, 4) == 0.1083
