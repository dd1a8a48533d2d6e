"""`experiments.reproduce`: the table, how much of it is the paper's, and what is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import one_line_error
from galvatron_constants import entry
from galvatron_oracle import oracle
from places import SHARED_DATA

from experiments.reproduce.galvatron.constant_tables import MODELS, ReproducedCell, agreement
from experiments.reproduce.galvatron.published_cells import TABLE_2, TABLE_3, PublishedCell, read_cells
from experiments.reproduce.galvatron.published_columns import Best

SHIPPED = SHARED_DATA / "galvatron" / "rtx_titan_2022" / "profile_constants.json"
PAPER = SHARED_DATA / "galvatron" / "paper_tables.json"

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


@pytest.mark.skipif(not PAPER.exists(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("table", "name", "cluster"),
    [(TABLE_2, "table2_8gpu_rtx_titan", None), (TABLE_3, "table3_16gpu", "16xRTX-TITAN(low)")],
)
def test_the_published_figures_are_the_papers(table: str, name: str, cluster: str | None) -> None:
    paper = {
        (row["model"], row["memGB"], row["strategy"].removeprefix("Galvatron (").removesuffix(")")): row
        for row in json.loads(PAPER.read_text())[name]
        if row.get("cluster") == cluster
    }
    cells = read_cells(table)
    assert len({cell[:3] for cell in cells}) == len(cells) == (96 if table is TABLE_2 else 24)
    for cell in cells:
        row = paper[cell[:3]]
        assert (cell.batch, cell.samples_per_s) == (row.get("batch"), row.get("samples_per_s"))


def test_the_agreement_by_hand() -> None:
    def cell(batch: int | None, samples_per_s: float | None, found: Best | None) -> ReproducedCell:
        return ReproducedCell(PublishedCell("BERT-Huge-32", 8, "DP+TP", batch, samples_per_s), found)

    cells = [
        cell(8, 10.0, Best(8, 11.0)),
        cell(8, 10.0, Best(16, 7.0)),
        cell(8, 10.0, None),
        cell(None, None, Best(8, 10.0)),
        cell(None, None, None),
    ]
    found = agreement(cells)
    assert (found.num_cells, found.same_out_of_memory, found.both_batches, found.same_batch) == (5, 3, 2, 1)
    assert found.throughput_error == pytest.approx(0.2)
    assert agreement(cells[2:]).throughput_error is None
    assert cells[3].to_row()[3:] == ("false", "8", "10", "true", "", "")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["experiment=galvatron_table2"], "constants: has no value; give one, as in constants=VALUE"),
        ([], "experiment: has no value; give one of all, dissertation_figure2_15, "),
        (
            ["constants=x.json"],
            "constants: is an option of galvatron_table2, galvatron_table3; choose that by experiment=NAME",
        ),
        (
            ["experiment=galvatron_table2", "size=tiny"],
            "size: 'tiny' is not known; the options are full, small",
        ),
        (
            ["experiment=galvatron_table4", "constants=x.json"],
            "experiment=galvatron_table4: is not there; the options are all, dissertation_figure2_15, ",
        ),
        (["experiment=galvatron_trends", "tables=[VII]"], "tables: 'VII' is not known; did you mean VI?"),
        (["experiment=galvatron_trends", "tables=[VI,VI]"], "tables: 'VI' is named twice; name each once"),
        (
            ["experiment=galvatron_trends", "tables=[]"],
            "tables: [] is not a list of at least one; the options",
        ),
        (["experiment=galvatron_trends", "tables=II"], "tables: 'II' is not a list; write [II]"),
        (["experiment=large_vocabulary", "models=[gpt_12b]"], "models: 'gpt_12b' is not known; did you mean"),
        (["experiment=galvatron_table2", "constants=none.json"], "none.json: cannot be read"),
        (["experiment=galvatron_table2", "constants=[1]"], "constants: [1] is not text"),
        (["experiment=galvatron_table2", "constants={}"], "is not a mapping of entries"),
    ],
)
def test_wrong_input(overrides: list[str], message: str, command: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "constants.json"
    path.write_text("[]")
    given = [each.replace("{}", str(path)) for each in overrides]
    assert message in one_line_error(command("reproduce", *given))
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
def test_wrong_constants(data: Any, message: str, command: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "constants.json"
    path.write_text(json.dumps(data))
    line = one_line_error(command("reproduce", "experiment=galvatron_table2", f"constants={path}"))
    assert f"{path}: {message}" in line
    assert not (tmp_path / "out/table2.csv").exists()
