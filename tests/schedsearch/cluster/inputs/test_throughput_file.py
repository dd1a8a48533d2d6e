import json
from pathlib import Path

import pytest
from cluster.small_clusters import GAVEL, needs_gavel
from one_line_errors import raises_line

from placements.forms.texts import write_json
from schedsearch.cluster.gpu_cluster import ClusterError
from schedsearch.cluster.inputs.throughput_file import read_job_types, read_throughputs
from schedsearch.cluster.throughputs import JobOperatingPoint

A, B = "('A', 1)", "('B', 1)"
SMALL = {
    "v100": {A: {"null": 4.0, B: [3.0, 1.0], A: [2.5, 2.5]}, B: {"null": 2, A: [1.0, 3.0]}},
    "v100_unconsolidated": {A: {"null": 3.0}},
}

TABLE = """job_type,scale_factor,gpu_type,steps_per_s,power_w,clock_mhz,other_job_type,other_steps_per_s
GPT,8,h100,3.5,3100,1400,,
GPT,8,h100,4,4400.5,1980,,
GPT,8,a100,0,,,,
BERT,1,a100,11,,,,
BERT,1,a100,7.5,,,GPT,6
"""


def test_gavels_form(tmp_path: Path) -> None:
    throughputs = read_throughputs(write_json(tmp_path / "t.json", SMALL))
    assert throughputs.rate("A", 1, "v100") == 4.0
    assert throughputs.rate("A", 1, "v100_unconsolidated") == 0.0
    assert throughputs.pair("A", "B", 1) == {"v100": (3.0, 1.0)}
    assert throughputs.pair("B", "A", 1) == {"v100": (1.0, 3.0)}
    assert throughputs.pair("A", "A", 1) == {"v100": (2.5, 2.5)}


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    """The fastest clock is the first, in any order of rows."""
    (tmp_path / "t.csv").write_text(TABLE)
    throughputs = read_throughputs(tmp_path / "t.csv")
    assert throughputs.alone["GPT", 8]["h100"] == (
        JobOperatingPoint(4, 4400.5, 1980),
        JobOperatingPoint(3.5, 3100, 1400),
    )
    assert throughputs.rate("GPT", 8, "a100") == 0.0
    assert throughputs.pair("GPT", "BERT", 1) == {"a100": (6, 7.5)}


@needs_gavel
def test_gavels_measurements() -> None:
    throughputs = read_throughputs(GAVEL / "simulation_throughputs.json")
    assert len(throughputs.alone) == 83
    assert {gpu_type for row in throughputs.alone.values() for gpu_type in row} == {"v100", "p100", "k80"}
    assert throughputs.rate("ResNet-50 (batch size 16)", 1, "v100") == 11.396129065315943


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"v100": {A: {"null": float("nan")}}},
            "v100.('A', 1).null: nan is not a throughput in steps/s; give",
        ),
        ({"v100": {"A": {"null": 1}}}, "v100: 'A' is not a type of job; write \"('ResNet-18', 1)\""),
        ({"v100": {A: {"('B', 2)": [1, 1]}}}, "is not of jobs with 1 GPUs; pair jobs of one scale factor"),
        ({"v100": {A: {B: [1]}}}, "[1] is not the throughputs of two jobs; give [steps/s, steps/s]"),
        ({"v100": {A: {B: [1, 2]}, B: {A: [1, 2]}}}, "make both entries equal"),
        ({}, "has no throughputs; give Gavel's JSON or a CSV table"),
    ],
)
def test_mistakes_in_gavels_form(tmp_path: Path, changed: object, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(changed))
    with raises_line(ClusterError, f"{path}: ", has=message):
        read_throughputs(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("GPT,8,h100,,,,,", "line 2, column steps_per_s: is empty; fill the cell or remove the row"),
        ("GPT,8,h100,1,,,,3", "line 2: gives one of other_job_type and other_steps_per_s; give both or none"),
        ("GPT,8,h100,1,,,BERT,", "line 2: gives one of other_job_type and other_steps_per_s; give both"),
        ("GPT,8,h100,1,300,,BERT,3", "line 2: has power_w, clock_mhz or unconsolidated_steps_per_s for two"),
        ("A,1,h100,1,,,B,1\nB,1,h100,2,,,A,1", "line 3: B with A on 1 h100 has other steps/s elsewhere"),
        ("A,1,h100,1,,,,\nA,1,h100,2,,,,", "line 3: A on 1 h100 is given twice at this clock; keep one"),
    ],
)
def test_mistakes_in_a_table(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{TABLE.splitlines()[0]}\n{line}\n")
    with raises_line(ClusterError, f"{path}: {message}"):
        read_throughputs(path)


def test_throughputs_on_several_servers(tmp_path: Path) -> None:
    """A table has them in a column, which may be empty; Gavel's JSON in types of their own."""
    header, *rows = TABLE.splitlines()
    lines = [f"{header},unconsolidated_steps_per_s", f"{rows[0]},2.5", *(f"{row}," for row in rows[1:])]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines))
    assert read_throughputs(path).unconsolidated is None
    apart = read_throughputs(path, unconsolidated=True).unconsolidated
    assert apart is not None
    assert dict(apart.alone) == {("GPT", 8): {"h100": (JobOperatingPoint(2.5, 3100, 1400),)}}
    apart = read_throughputs(write_json(tmp_path / "t.json", SMALL), unconsolidated=True).unconsolidated
    assert apart is not None
    assert apart.rate("A", 1, "v100") == 3.0
    (tmp_path / "plain.csv").write_text(TABLE)
    with pytest.raises(ClusterError, match="plain.csv: does not say how fast a job is on several servers"):
        read_throughputs(tmp_path / "plain.csv", unconsolidated=True)


def test_types_of_jobs_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "types.csv"
    path.write_text("job_type,may_be_distributed\nB,1\nA,0\n")
    assert [*read_job_types(path).items()] == [("B", True), ("A", False)]
    path.write_text("job_type,may_be_distributed\nA,1\nA,0\n")
    with raises_line(ClusterError, f"{path}: line 3: job_type A is in line 2 too; keep one row"):
        read_job_types(path)
