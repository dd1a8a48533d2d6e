from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from one_line_errors import raises_line
from places import ROOT

from experiments.benchmarks.best_known import verbs
from experiments.benchmarks.best_known.answers import RECORD, keep, placement_of_problem
from experiments.benchmarks.frame import read_rows
from experiments.benchmarks.instances import check
from experiments.benchmarks.instances.check import FIGURES, FOLDER, CheckError, Json
from placements.placement_file import placement_to_dict
from placements.shapes import v_shape
from schedsearch.baselines import zb_h2
from schedsearch.device_span import device_spans
from schedsearch.schedule import Schedule, ScheduledBlock
from schedsearch.validate import InvalidScheduleError, validate

PROBLEMS = check.read_problems()
V_2 = {"class": "tiny", "held_out": False, "quick": True, "source": "our own", "num_micro_batches": 3}
V_2 |= {"transfer": []} | placement_to_dict(replace(v_shape(2).with_memory(2), name="v_2"))
EXAMPLE: Json = json.loads(re.findall(r"```json\n(.*?)```", (FOLDER / "SCHEMA.md").read_text(), re.DOTALL)[0])
RECORDED = {field: EXAMPLE[field] for field in RECORD}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "problems" / "tiny").mkdir(parents=True)
    (tmp_path / "problems" / "tiny" / "v_2.json").write_text(json.dumps(V_2))
    (tmp_path / "best_known.json").write_text("{}")
    shutil.copy(FOLDER / "check.py", tmp_path)
    (tmp_path / "v_2.json").write_text(json.dumps(EXAMPLE))
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "check.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_answer_of_the_data_set_is_valid_in_a_copy_of_the_folder_alone(tmp_path: Path) -> None:
    done = run(shutil.copytree(FOLDER, tmp_path / "copy"))
    assert done.stdout.endswith("177 problems: answers and bounds are right\n"), done.stderr


def test_the_files_are_of_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = check.read_json(FOLDER / "schema.json")
    files = [("answers", EXAMPLE), ("best_known", check.read_json(FOLDER / "best_known.json"))]
    files += [("problem", problem) for problem in PROBLEMS.values()]
    files += [("answers", answers) for answers in check.answers_of("dags").values()]
    for name, data in files:
        jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{name}"}).validate(data)


def test_what_is_published_says_the_same_everywhere() -> None:
    for folder, kind in ((FOLDER, "dataset"), (ROOT, "software")):
        zenodo, citation = check.read_json(folder / ".zenodo.json"), (folder / "CITATION.cff").read_text()
        assert (zenodo["upload_type"], zenodo["access_right"]) == (kind, "open") and "doi" not in zenodo
        assert f'title: "{zenodo["title"]}"\ntype: {kind}\n' in citation
        by = f"license: {zenodo['license']}\nauthors:\n- name: {zenodo['creators'][0]['name']}\n"
        assert by in citation and f"version: {zenodo.get('version', '')}" in citation
    version = check.read_json(FOLDER / ".zenodo.json")["version"]
    assert f"\n## {version} (" in (FOLDER / "CHANGES.md").read_text()
    assert (FOLDER / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_readme_has_the_checkers_table_of_all_problems_of_which_a_third_is_held_out() -> None:
    table = check.table([*PROBLEMS.values()], check.read_json(FOLDER / "best_known.json"))
    assert f"<!-- table -->\n{table}<!-- end -->" in (FOLDER / "README.md").read_text()
    for problem in PROBLEMS.values():
        assert problem == check.read_json(FOLDER / f"problems/{problem['class']}/{problem['name']}.json")
        assert placement_of_problem(problem).num_devices == len(problem["memory"])
        assert problem["held_out"] is (hashlib.sha256(problem["name"].encode()).digest()[0] % 3 == 0)
    assert (FOLDER / "check.py").read_text().count("\n") <= 200
    assert 1 / 4 < sum(problem["held_out"] for problem in PROBLEMS.values()) / len(PROBLEMS) < 2 / 5
    quick = [problem for problem in PROBLEMS.values() if problem["quick"]]
    assert len(quick) == 20 and not any(problem["held_out"] for problem in quick)
    assert {problem["class"] for problem in quick} == {problem["class"] for problem in PROBLEMS.values()}


def refuses(judge: Callable[..., object], *arguments: object) -> bool:
    try:
        judge(*arguments)
    except (CheckError, InvalidScheduleError):
        return True
    return False


@pytest.mark.parametrize(
    "name", ["dag_6x24_12_blocks_seed_9_some", "k_4x16_memory_2", "v_8x32_split_111_memory_5"]
)
def test_the_checker_and_our_validation_agree(name: str) -> None:
    """Also about schedules with one block moved; the two share no code."""
    problem, draws, verdicts = PROBLEMS[name], random.Random(0), set()
    starts = check.answers_of(problem["class"])[name]["makespan"]["starts"]
    placement, number = placement_of_problem(problem), problem["num_micro_batches"]
    for _ in range(40):
        moved = {block: list(ticks) for block, ticks in starts.items()}
        moved[draws.choice([*moved])][draws.randrange(number)] += draws.choice([0, 1, 50])
        blocks = [ScheduledBlock(at, n, name) for name, ticks in moved.items() for n, at in enumerate(ticks)]
        verdict = refuses(validate, Schedule(placement, number, tuple(blocks)))
        assert verdict == refuses(check.check_schedule, problem, moved)
        verdicts.add(verdict)
    assert verdicts == {True, False}


STARTS, FIRST = EXAMPLE["makespan"]["starts"], EXAMPLE["period"]["first_starts"]


def test_the_checker_compares_and_refuses_a_wrong_table(folder: Path) -> None:
    keep(folder, V_2, EXAMPLE | {"makespan": {"starts": STARTS | {"B0": [5, 9, 14]}}}, RECORDED, {})
    (folder / "sent").mkdir()
    shutil.copy(folder / "v_2.json", folder / "sent")
    better = "v_2: makespan 16 is better than the best known, 17; the bound is 12\n"
    assert better in run(folder, "v_2", "v_2.json").stdout and better in run(folder).stdout
    best = check.read_json(folder / "best_known.json")
    for figure, change, message in (
        ("makespan", {"value": 15}, "the answer reaches 17, not 15"),
        ("makespan", {"bound": 18, "bound_by": "search"}, "17 is below the bound, 18; one of them is wrong"),
        ("period", {"bound": 3}, "the load proves 4, not 3"),
    ):
        changed = {"v_2": best["v_2"] | {figure: best["v_2"][figure] | change}}
        (folder / "best_known.json").write_text(json.dumps(changed))
        assert run(folder).stderr == f"v_2: {figure}: {message}\n"
    assert run(folder, "v_3").stderr.startswith("v_3: is no class or problem")
    (folder / "v_2.json").write_text("{}")
    assert run(folder, "v_2", "v_2.json").stderr == f"v_2: the answer has none of {', '.join(FIGURES)}\n"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"starts": {}}, "the starts do not name exactly the blocks of the problem"),
        ({"starts": STARTS | {"F0": [0, 1, 2]}}, "device 0 holds 3 units of memory at 2, of 2"),
        ({"starts": STARTS | {"F1": [0, 5, 9]}}, "F1 of micro-batch 0 starts at 0, its input F0 arrives at"),
        ({"starts": STARTS | {"F0": [0, 0, 5]}}, "F0 of micro-batch 1 starts at 0 on device 0, .* until 1"),
        ({"starts": STARTS | {"B0": [6, 9]}}, "B0 needs a start in whole ticks for each of 3 micro-batches"),
        ({"ends": STARTS}, "is not as in SCHEMA.md: KeyError"),
        ({"period": 3}, "a device has 4 ticks of work, more than the period of 3"),
        ({"first_starts": FIRST | {"B0": [4]}}, "B0 of micro-batch 0 starts at 4, its input B1 arrives at 5"),
        ({"first_starts": FIRST | {"B0": [6]}}, "F0 of micro-batch 2 starts at 8 on device 0, .* until 9"),
        ({"first_starts": FIRST | {"B0": [9]}}, "device 0 holds 3 units of memory at 8, of 2"),
    ],
)
def test_a_broken_answer_is_one_line(answer: Json, message: str, folder: Path) -> None:
    keep(folder, V_2, EXAMPLE, RECORDED, {})
    assert run(folder, "v_2", "v_2.json").stdout.count("is equal to the best known") == 3
    figure = "period" if {"period", "first_starts"} & answer.keys() else "makespan"
    broken = {figure: EXAMPLE["period"] | answer if figure == "period" else answer}
    (folder / "v_2.json").write_text(json.dumps(broken))
    assert re.fullmatch(f"v_2: {figure}: {message}.*\n", run(folder, "v_2", "v_2.json").stderr)


def test_a_mistake_in_a_problem_is_one_line() -> None:
    for field, value, message in (
        ("blocks", V_2["blocks"][:3], "blocks: one micro-batch holds 1 of memory on device 0 in the end"),
        ("tick_ms", 0, "tick_ms: 0 is not"),
    ):
        with raises_line(CheckError, match=rf"problems/tiny/v_2.json: {message}"):
            placement_of_problem(V_2 | {field: value})


def command(folder: Path, *arguments: str) -> int:
    output = ["--output", str(folder / "results.json")] if arguments[0] == "search" else []
    return verbs.main(["--folder", str(folder), *arguments, *output])


def test_a_search_keeps_what_is_better(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(folder, "search", "--work", "5", "--update", "--workers", "2") == 0
    (row,) = read_rows(folder / "results.json")
    assert (row.part, row.figures["better"]) == ("tiny", "makespan, device_span, period")
    best = check.read_json(folder / "best_known.json")["v_2"]
    assert [best[figure]["value"] for figure in check.FIGURES] == [4, 16, 16]
    assert (best["period"]["who"], best["period"]["method"]) == ("the schedsearch authors", "search")
    assert run(folder).stdout.endswith("1 problems: answers and bounds are right\n")
    assert command(folder, "search", "v_2", "--work", "5", "--without", "annealing") == 0
    row = read_rows(folder / "results.json")[0]
    assert row.figures["period_gap"] == row.figures["makespan_gap"] == 0
    assert command(folder, "keep", str(folder / "v_2.json")) == 0
    assert "v_2: kept: nothing, as nothing is better" in capsys.readouterr().out


def test_an_answer_that_was_sent_in_is_kept_with_its_record(folder: Path) -> None:
    with raises_line(CheckError, match="v_2: period: 4 is below the bound, 5; one of them is wrong"):
        keep(folder, V_2, EXAMPLE, RECORDED, {"period": Fraction(5)})
    assert check.read_json(folder / "best_known.json") == {}
    assert command(folder, "keep", str(folder / "v_2.json")) == 0
    best = check.read_json(folder / "best_known.json")["v_2"]
    assert RECORDED.items() <= best["makespan"].items() and best["period"]["bound_by"] == "load"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("search --limit=-3", "--limit: -3 is not a positive number"),
        ("search no_such", "name: 'no_such' is no class or problem; the classes are tiny"),
        ("keep {}/best_known.json", "best_known.json: no problem has the name of this file; see SCHEMA.md"),
        ("keep {}/problems/tiny/v_2.json", "v_2.json: who: is missing; see SCHEMA.md"),
    ],
)
def test_a_wrong_command_is_one_line(
    arguments: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command(folder, *arguments.format(folder).split())
    assert capsys.readouterr().err.splitlines()[-1].endswith(message)


def test_the_device_span_of_zb_h2_is_the_published_one() -> None:
    """GPT-1.5B, 8 stages, 24 micro-batches: 0.1083, by m(F + B + W) + (p - 1)(F + B + 2 transfer - 2 W)."""
    span = int(device_spans(zb_h2(placement_of_problem(PROBLEMS["v_8x24_gpt_1b_2p"]), 24)).max())
    assert span == 24 * (18522 + 18086 + 9337) + 7 * (18522 + 18086 + 2 * 601 - 2 * 9337)
    assert round(1 - 24 * (18522 + 18086 + 9337) / span, 4) == 0.1083
