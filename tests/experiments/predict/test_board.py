"""The board: errors, pairs in order, our choice beside the best; and its page, also of an interrupted run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.predict import task
from experiments.predict.board import BoardRun, board_rows, group_rows, refusals
from experiments.predict.options import PredictOptions
from experiments.predict.run_prediction import predict_run
from experiments.predict.run_table import read_run_folder
from experiments.predict.task import board_table, write_board
from placements.models.memory import FRAMEWORKS
from schedsearch.figures.predicted import draw_predicted


def write_folder(folder: Path, *rows: tuple[int, int, int]) -> Path:
    """Write a table of Llama 3 8B on 8 A100 with these stages, micro-batches and tokens."""
    lines = [f"{i},llama3_8b,a100,8,2,{','.join(map(str, row))},100" for i, row in enumerate(rows)]
    header = "run,model,gpu,gpus,tp,pp,num_micro_batches,sequence_length,measured_ms"
    (folder / "runs.csv").write_text("\n".join([header, *lines]) + "\n")
    return folder


def run(name: str, measured: float | None, predicted: float | None, **more: Any) -> BoardRun:
    layout = more.pop("layout", name)
    note = "" if predicted else "mine; not predicted: gpu: 'x' is not known"
    return replace(
        BoardRun("t.csv", name, "a question", layout, measured, predicted, None, 10.0, 11.0, None, note=note),
        **more,
    )


def test_choice_and_order_are_of_layouts_for_one_question() -> None:
    """A 100 ms, B 100.5 (not a pair with A), C 200; predicted B before C before A."""
    some = [run("A", 100, 90), run("B", 100.5, 50), run("C", 200, 70)]
    (row,) = group_rows(some)
    assert (row["best"], row["chosen"], row["pairs"], row["pairs_in_order"]) == ("A", "B", 2, 1)
    assert row["longer_percent"] == pytest.approx(0.5)
    other = [replace(row, question="another") for row in some[:1]]
    assert group_rows([*some, *other]) == [row], "a run alone is no choice"
    (row,) = group_rows([*some, run("D", 80, None)])
    assert (row["best"], row["longer_percent"]) == ("D", 25.625), "a refused run may be the best"
    assert (row["runs"], row["predicted"], row["pairs"]) == (4, 3, 2)


def test_equal_predictions_choose_the_longest_and_of_equal_layouts_the_shortest_counts() -> None:
    (row,) = group_rows([run("A", 100, 50), run("B", 150, 50)])
    assert (row["chosen_ms"], row["pairs"], row["pairs_in_order"]) == (150, 1, 0)
    (row,) = group_rows([run("A", 130, 60), run("B", 150, 50), run("C", 120, 50, layout="B")])
    assert (row["runs"], row["best_ms"], row["chosen_ms"], row["pairs_in_order"]) == (3, 120, 120, 1)
    assert not group_rows([run("A", 100, 50), run("B", 150, 60, layout="A"), run("C", None, 70)])


def test_errors_are_of_runs_that_are_not_given_and_refusals_are_counted() -> None:
    some = [run("A", 100, 90, peer_ms=120), run("B", 100, 130, is_given=True), run("C", 50, None)]
    (row,) = board_rows([*some, run("D", 50, None)])
    assert (row["runs"], row["refused"], row["time_runs"], row["time_error_percent"]) == (4, 2, 1, 10)
    assert (row["peer_time_error_percent"], row["worst_memory_error_percent"]) == (20, 10)
    assert refusals([*some, run("D", 50, None)]) == [("gpu: 'x' is not known", 2)]
    _, _, last = board_rows([*some, run("E", 100, 70, table="u.csv")])
    assert (last["time_error_percent"], last["worst_time_error_percent"]) == (20, 30)
    assert "refused" in board_table(some)[0] and "refused" not in board_table(some[:1])[0]


def test_a_question_is_all_but_the_layout(tmp_path: Path) -> None:
    folder = read_run_folder(write_folder(tmp_path, (1, 4, 64), (2, 8, 64), (2, 4, 64), (1, 4, 128)))
    rows = [predict_run(folder, measured, FRAMEWORKS["plain"]) for measured in folder.runs]
    assert rows[0].question == "model llama3_8b, gpu a100, gpus 8, sequence length 64, global batch 16"
    assert [row.question == rows[0].question for row in rows] == [True, True, False, False]
    assert [row.layout for row in rows] == ["tp 2", "tp 2, pp 2", "tp 2, pp 2", "tp 2"]


def test_ctrl_c_keeps_the_runs_that_are_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def once(folder: Any, measured: Any, *more: Any) -> Any:
        if measured.run == "1":
            raise KeyboardInterrupt
        return predict_run(folder, measured, *more)

    monkeypatch.setattr(task, "predict_run", once)
    result = task.task(PredictOptions(data=str(write_folder(tmp_path, *[(1, 4, 64)] * 3))))
    assert result.interrupted == "1 of 3 runs are in"
    assert [row.run for row in result.tables["predictions"].rows] == ["0"]
    assert "board.html" in result.files


def test_the_page_tells_the_worst_choices_and_the_refusals(tmp_path: Path) -> None:
    some = [run("A", 100, 90), run("B", 150, 50), run("C", 50, None)]
    write_board(some, ["one factor"], tmp_path / "board.html")
    page = (tmp_path / "board.html").read_text(encoding="utf-8")
    assert "one factor" in page and "gpu: &#39;x&#39; is not known" in page
    assert "+200.0 %" in page and "chosen: B, 150 ms; best: C, 50 ms" in page
    assert (tmp_path / "board.png").is_file()
    write_board([run("C", None, None, predicted_gib=None)], [], tmp_path / "empty.html")
    assert "data:image" not in (tmp_path / "empty.html").read_text(encoding="utf-8")


def test_points_are_where_they_are_on_equal_axes() -> None:
    names = [f"table {i}" for i in range(9)]
    figure = draw_predicted({"time (ms)": {name: [(10, 20), (400, 300)] for name in names}})
    (axes,) = figure.axes
    assert axes.get_xlim() == axes.get_ylim() == (8, 500)
    drawn = {line.get_label(): line for line in axes.lines if line.get_label() in names}
    assert drawn["table 8"].get_xydata().tolist() == [[10, 20], [400, 300]]
    assert len({(line.get_color(), line.get_marker()) for line in drawn.values()}) == 9
