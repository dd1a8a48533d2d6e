"""`experiments.reproduce`: the table, how much of it is the paper's, and what is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from galvatron_constants import entry
from galvatron_oracle import oracle
from places import SHARED_DATA

from experiments.reproduce.galvatron.columns import ReproducedColumn
from experiments.reproduce.galvatron.constant_items import MODELS, TABLE_2, ConstantTable
from experiments.reproduce.galvatron.published_columns import Best

SHIPPED = SHARED_DATA / "galvatron" / "rtx_titan_2022" / "profile_constants.json"

HEADER = (
    "model,memory_gb,method,out_of_memory,batch,throughput,paper_out_of_memory,paper_batch,paper_throughput"
)


def rows_of(path: Path) -> list[dict[str, str]]:
    text = path.read_text()
    assert text.splitlines()[0] == HEADER
    return list(csv.DictReader(text.splitlines()))


def trends_of(path: Path) -> list[tuple[bool, str]]:
    return [(trend["holds"], trend["shown_by"]) for trend in json.loads(path.read_text())["trends"]]


@pytest.fixture
def made_up(tmp_path: Path) -> dict[str, Any]:
    """Constants of two models of several types, and one of another table."""
    path = tmp_path / "constants.json"
    data = {
        "t5_1024_8gpus": entry("t5_1024_8gpus", 2),
        "swin_320_8gpus": entry("swin_320_8gpus", 4, seed=1),
        "bert_1280_16gpus": entry("bert_1280_16gpus"),
        "bert_1024_8gpus": "not of the table",
    }
    path.write_text(json.dumps(data))
    return {"path": path, "data": data}


def test_models_of_several_types(
    command: Callable[..., Any], made_up: dict[str, Any], tmp_path: Path
) -> None:
    done = command("reproduce", "experiment=galvatron_table2", f"constants={made_up['path']}")
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "out/table2.csv")
    models = ["T5-Large-32", "T5-Large-48", "Swin-Huge-32", "Swin-Huge-48"]
    cells = [(gb, method) for gb in (8, 12, 16, 20) for method in ("Galvatron", "DP+TP", "DP+PP")]
    assert [(row["model"], int(row["memory_gb"]), row["method"]) for row in rows] == [
        (model, *cell) for cell in cells for model in models
    ]
    for row in rows:
        empty = row["out_of_memory"] == "true"
        assert row["out_of_memory"] in ("true", "false")
        assert (row["batch"] == "") == (row["throughput"] == "") == empty
        # One strategy for a stage, so that there is little to try.
        if row["method"] == "DP+PP" and row["memory_gb"] in ("8", "12"):
            entry_name, counts = MODELS[row["model"]]
            name = f"{entry_name}_8gpus"
            wanted = oracle(name, made_up["data"][name], counts, int(row["memory_gb"]), "dp+pp")
            assert empty == (wanted is None)
            if wanted is not None:
                assert int(row["batch"]) == wanted[0]
                assert float(row["throughput"]) == pytest.approx(wanted[1], rel=1e-5)
    assert not all(row["out_of_memory"] == "true" for row in rows if row["method"] == "DP+PP")
    assert done.stdout.startswith("Galvatron-BMW, Table II: ")
    assert "what fits is what fits in the paper (" in done.stdout


def test_table_3_is_of_16_gpus(command: Callable[..., Any], made_up: dict[str, Any], tmp_path: Path) -> None:
    done = command("reproduce", "experiment=galvatron_table3", f"constants={made_up['path']}")
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "out/table3.csv")
    assert {row["model"] for row in rows} == {"BERT-Huge-32", "BERT-Huge-48"}
    assert len(rows) == 12


@pytest.mark.skipif(not SHIPPED.exists(), reason="the shared data are not here")
def test_bert_and_vit_of_table_2(command: Callable[..., Any], tmp_path: Path) -> None:
    """The throughput that the original's cost model predicts is mostly above the measured one."""
    done = command("reproduce", "experiment=galvatron_table2", f"constants={SHIPPED}")
    assert done.returncode == 0, done.stderr
    assert trends_of(tmp_path / "out/galvatron_table2.json") == [
        (True, "48 of 48"),
        (False, "40 of 43"),
        (True, "32 of 32"),
        (False, "mean absolute error 10.45%"),
    ]
    assert "DOES NOT HOLD: the batch is the paper's (40 of 43)" in done.stdout
    assert len(rows_of(tmp_path / "out/table2.csv")) == 48


@pytest.mark.skipif(not SHIPPED.exists(), reason="the shared data are not here")
def test_bert_and_vit_of_table_3(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("reproduce", "experiment=galvatron_table3", f"constants={SHIPPED}")
    assert done.returncode == 0, done.stderr
    found = [shown for _, shown in trends_of(tmp_path / "out/galvatron_table3.json")]
    assert found == ["24 of 24", "15 of 22", "16 of 16", "mean absolute error 6.86%"]
    figures = json.loads((tmp_path / "out/result.json").read_text())["figures"]
    assert (figures["rows"], figures["trends"], figures["trends_that_hold"]) == (48, 4, 2)


def test_a_table_that_is_partly_the_papers() -> None:
    """Of two models at 8 GB: one batch of three differs, and one fits that does not in the paper."""
    column = TABLE_2.columns[0]
    papers = {"Galvatron": Best(8, 10.0), "DP+TP": Best(8, 10.0), "DP+PP": None}
    ours = {"Galvatron": Best(8, 11.0), "DP+TP": Best(16, 7.0), "DP+PP": Best(8, 10.0)}
    paper = ConstantTable("II", "", 8, "")
    paper.__dict__["columns"] = [replace(column, best=papers)]
    rows = ReproducedColumn(paper.columns[0], ours).rows("{gb} GB, {method}")
    rows = [replace(row, case=column.model) for row in rows]
    shown = [trend.shown_by for trend in paper.trends(rows)]
    assert shown == ["2 of 3", "1 of 2", "2 of 2", "mean absolute error 20.00%"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["experiment=galvatron_table2"], "constants: has no value; give one, as in constants=VALUE"),
        (["experiment=gavel_las"], "as in data=FOLDER; download scheduler/simulation_throughputs.json, "),
        ([], "experiment: has no value; give one of all, dissertation_figure2_15, "),
        (
            ["constants=x.json"],
            "constants: is an option of galvatron_table2, galvatron_table3; choose that by experiment=NAME",
        ),
        (
            ["experiment=galvatron_table2", "size=tiny"],
            "size: 'tiny' is not known; the options are full, small",
        ),
        (["experiment=galvatron_trends", "tables=[VII]"], "tables: 'VII' is not known; did you mean VI?"),
        (["experiment=galvatron_table2", "constants=none.json"], "none.json: cannot be read"),
        (["experiment=galvatron_table2", "constants={}"], "is not a mapping of entries"),
    ],
)
def test_wrong_input(overrides: list[str], message: str, refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "constants.json"
    path.write_text("[]")
    given = [each.replace("{}", str(path)) for each in overrides]
    assert message in refused("reproduce", *given)
    assert not (tmp_path / "out/table2.csv").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "has no entry of Table II of Galvatron-BMW; add one of bert_1280_8gpus, vit_1280_8gpus"),
        (
            {"t5_1024_8gpus": entry("t5_1024_8gpus")},
            "t5_1024_8gpus: has 1 types of layers, but the model has (16,",
        ),
        ({"vit_1280_8gpus": {}}, "vit_1280_8gpus: lacks the field 'strategies'; add it"),
    ],
)
def test_wrong_constants(data: Any, message: str, refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "constants.json"
    path.write_text(json.dumps(data))
    line = refused("reproduce", "experiment=galvatron_table2", f"constants={path}")
    assert f"{path}: {message}" in line
    assert not (tmp_path / "out/table2.csv").exists()
