"""The README's figures: three cases with measured times, each beside the best schedule by hand.

``python docs/front_page.py`` searches all three anew, in some minutes, records them in
``docs/front_page.json``, draws the picture and writes the table. Searches end by counted work. The errors of
predicted times come from the recorded board of measured runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from experiments.config.machine import commit
from experiments.reproduce.recorded import FOLDER
from placements.forms.texts import markdown_table, write_bytes, write_json, write_text
from placements.stages.stage_file import read_stages
from schedsearch.comparison.compare import compare
from schedsearch.comparison.rows import ComparedRow
from schedsearch.comparison.unequal import UnequalModel, read_chains
from schedsearch.figures.canvas import image
from schedsearch.figures.comparison import draw_timelines
from schedsearch.schedule import Schedule

DOCS = Path(__file__).parent
README, RECORD, PICTURE = DOCS.parent / "README.md", DOCS / "front_page.json", DOCS / "front_page.png"
BOARD = FOLDER / "board.json"
MEASURED = DOCS.parent / "examples" / "measured"
BEGIN, END = "<!-- from docs/front_page.json -->\n", "<!-- end -->\n"

BY_HAND = (
    "one_f_one_b",
    "interleaved_one_f_one_b",
    "zb_h1",
    "zb_v",
    "v_half",
    "v_min",
    "one_f_one_b_v",
    "hanayo",
    "dual_pipe",
    "dual_pipe_v",
)
"""Schedules by hand in each comparison."""

TITLES = {
    "v_half": "V-Half",
    "zb_v": "ZB-V",
    "dual_pipe_v, balanced": "DualPipe-V, sequences shared evenly by time",
}
"""Readable names of the best ones."""


@dataclass(frozen=True)
class Question:
    """A comparison: text in the table, file of stages, memory of each device, work of the searches."""

    text: str
    stages: str
    memory_mib: float
    work_limit: float
    searched: str = "searched@wave_shape"
    has_lengths: bool = False


QUESTIONS = {
    "memory": Question(
        "**Little memory**: GPT-3 2.7B on 8 A40, 16 micro-batches, memory for the activations of 5",
        "gpt3_2.7b.yaml",
        5.0,
        60.0,
    ),
    "stages": Question(
        "**Unequal stages**: the same in the memory of 1F1B, for the activations of 8",
        "gpt3_2.7b.yaml",
        8.0,
        60.0,
    ),
    "sequences": Question(
        "**Sequences of unequal length**: 64 of them on two replicas of 8 H100, 32 layers of Llama 3 8B",
        "llama3_8b.yaml",
        65536.0,
        40.0,
        "searched",
        True,
    ),
}


@dataclass(frozen=True)
class Case:
    """Times of a case in ms: the searched schedule, the best by hand that fits its memory, a lower bound."""

    searched_ms: float
    by_hand: str
    by_hand_ms: float
    bound_ms: float


def compared_rows(question: Question, names: Sequence[str]) -> list[ComparedRow]:
    """Return the rows of a comparison, in the order of the names."""
    stages = replace(read_stages(MEASURED / question.stages), memory_mib=question.memory_mib)
    if not question.has_lengths:
        return [*compare(stages, names, 16, work_limit=question.work_limit).rows]
    files = MEASURED / "llama3_8b_lengths.csv", None, MEASURED / "llama3_8b_length_rules.csv"
    model = UnequalModel(read_chains(stages, *files), replicas=2)
    return [*compare(stages, names, 64, micro_batches=model, work_limit=question.work_limit).rows]


def best_by_hand(question: Question) -> ComparedRow:
    """Return the shortest schedule by hand that fits."""
    return min(compared_rows(question, BY_HAND), key=lambda row: row.quality)


def answered(question: Question) -> tuple[Case, dict[str, Schedule]]:
    """Search; return the times, and the best schedule by hand and the searched one by title."""
    searched, *others = compared_rows(question, (question.searched, *BY_HAND))
    best = min(others, key=lambda row: row.quality)
    assert searched.makespan_ms and searched.makespan_bound_ms and best.makespan_ms
    case = Case(searched.makespan_ms, best.schedule, best.makespan_ms, searched.makespan_bound_ms)
    named = {f"{TITLES[best.schedule]}, the best by hand": best, "searched": searched}
    schedules = {f"{title}: {_ms(row.makespan_ms or 0)}": row.solution for title, row in named.items()}
    return case, {title: schedule for title, schedule in schedules.items() if schedule is not None}


def picture(schedules: Mapping[str, Schedule]) -> bytes:
    """Return schedules one above the other, as PNG."""
    shown = {
        title: replace(made, placement=replace(made.placement, name=title))
        for title, made in schedules.items()
    }
    return image(draw_timelines(shown), "png")


def with_figures(readme: str, record: Mapping[str, Any], board: Mapping[str, Any]) -> str:
    """Return the README with the table of the recorded cases, and the errors of predicted times."""
    heads = "one iteration", "best by hand that fits", "searched", "lower bound of its placement"
    rows = []
    for name, question in QUESTIONS.items():
        case = Case(**record["cases"][name])
        less = 100 * (1 - case.searched_ms / case.by_hand_ms)
        by_hand = f"{_ms(case.by_hand_ms)} ({TITLES[case.by_hand]})"
        cells = by_hand, f"**{_ms(case.searched_ms)}**, {less:.1f} % less", _ms(case.bound_ms)
        rows.append((question.text, *cells))
    mean = {row["table"]: row["time_error_percent"] for row in board["rows"] if row["time_error_percent"]}
    near, far = mean.pop("b200_layers.csv"), max(mean.values())
    predicted = (
        f"Predicted times of 22 runs on 8 B200 are off by {near:.1f} % on average, those of other published "
        f"tables of runs by up to {far:.0f} %: [is it right?](docs/concepts/is_it_right.md)"
    )
    text = f"{markdown_table(heads, rows)}\n\n{predicted}\n"
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


def _ms(time_ms: float) -> str:
    return f"{time_ms:,.1f} ms" if time_ms < 1000 else f"{time_ms:,.0f} ms"


def main() -> None:
    """Search all cases, record them, draw the picture and write the table."""
    answers = {name: answered(question) for name, question in QUESTIONS.items()}
    record = {"commit": commit(), "cases": {name: asdict(case) for name, (case, _) in answers.items()}}
    write_json(RECORD, record)
    write_bytes(PICTURE, picture(answers["stages"][1]))
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    write_text(README, with_figures(README.read_text(encoding="utf-8"), record, board))


if __name__ == "__main__":
    main()
