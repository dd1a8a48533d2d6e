"""The README's figures: three cases with measured times, each beside the best schedule by hand.

``python docs/front_page.py`` searches all three anew, in some minutes, records them in
``docs/front_page.json``, draws the picture and writes the table. Searches end by counted work. The errors of
predicted times come from the recorded board of measured runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from experiments.config.machine import commit
from experiments.reproduce.recorded import FOLDER
from placements.forms.texts import markdown_table, write_bytes, write_json, write_text
from placements.placement_file import read_placement
from placements.spec import Placement
from placements.stages.stage_chain import place
from placements.stages.stage_file import read_stages
from schedsearch.baselines import HAND_MADE, applicable
from schedsearch.baselines.chosen_modes import with_chosen_modes
from schedsearch.comparison.compare import compare
from schedsearch.comparison.unequal import UnequalModel, read_chains
from schedsearch.figures.canvas import image
from schedsearch.figures.comparison import draw_timelines
from schedsearch.schedule import Schedule
from schedsearch.searches.search import search

DOCS = Path(__file__).parent
README, RECORD, PICTURE = DOCS.parent / "README.md", DOCS / "front_page.json", DOCS / "front_page.png"
BOARD = FOLDER / "board.json"
MEASURED = DOCS.parent / "examples" / "measured"
BEGIN, END = "<!-- from docs/front_page.json -->\n", "<!-- end -->\n"

CASES = {
    "memory": "**Too little memory**: Llama 3 8B, 16 sequences of 8192 tokens, 8 GPUs of 40 GiB, layers "
    "measured on an H100",
    "sequences": "**Sequences of unequal length**: 64 of them on two replicas of 8 GPUs of 80 GiB, the "
    "same layers",
    "stages": "**Unequal stages**: GPT-3 2.7B on 8 A40, stages measured by Perseus's authors, 16 "
    "micro-batches, memory for 8, whole backwards",
}
"""Text of each case in the table."""

TITLES = {
    "one_f_one_b, each stage what it can afford": "1F1B, each stage recomputes as its memory needs",
    "zb_h1, balanced": "ZB-H1, sequences shared evenly by length",
    "one_f_one_b_v": "1F1B-V",
}
"""Readable names of schedules by hand."""


@dataclass(frozen=True)
class Case:
    """Times of a case in ms: the searched schedule, the best by hand that fits its memory, a lower bound."""

    searched_ms: float
    by_hand: str
    by_hand_ms: float
    bound_ms: float
    work_limit: float


def memory_by_hand(num_micro_batches: int) -> tuple[str, float]:
    """Return the shortest schedule by hand that fits with modes chosen by hand, and its time in ms."""
    placement = read_placement(MEASURED / "llama3_8b_40gib.yaml")
    made = dict(with_chosen_modes(placement, num_micro_batches, dict(HAND_MADE)))
    times_ms = {
        name: placement.ms(schedule.makespan) for name, schedule in made.items() if schedule is not None
    }
    return min(times_ms.items(), key=lambda item: item[1])


def memory_case(work_limit: float = 60) -> tuple[Case, dict[str, float]]:
    """Search modes and order; return the times of a micro-batch in steady state too.

    By hand: the time that sixteen more micro-batches add, divided by sixteen.
    """
    placement = read_placement(MEASURED / "llama3_8b_40gib.yaml")
    answer = search(placement, 16, work_limit=work_limit)
    assert answer.schedule is not None and answer.repetend is not None
    name, by_hand_ms = memory_by_hand(16)
    times_ms = (by_hand_ms, placement.ms(answer.makespan_bound))
    steady = {
        "by_hand_ms": (memory_by_hand(32)[1] - by_hand_ms) / 16,
        "searched_ms": placement.ms(answer.repetend.period_per_micro_batch),
        "bound_ms": placement.ms(answer.period_bound),
    }
    return Case(placement.ms(answer.schedule.makespan), name, *times_ms, work_limit), steady


def sequences_case(work_limit: float = 20) -> Case:
    """Search the replica of each sequence, and the order on each replica."""
    stages = read_stages(MEASURED / "llama3_8b.yaml")
    files = MEASURED / "llama3_8b_lengths.csv", None, MEASURED / "llama3_8b_length_rules.csv"
    model = UnequalModel(read_chains(stages, *files), replicas=2)
    names = ["searched", "one_f_one_b", "zb_h1"]
    first, *others = compare(stages, names, 64, micro_batches=model, work_limit=work_limit).rows
    assert first.makespan_ms is not None and first.makespan_bound_ms is not None
    best = min(others, key=lambda row: row.quality)
    assert best.makespan_ms is not None
    return Case(first.makespan_ms, best.schedule, best.makespan_ms, first.makespan_bound_ms, work_limit)


def unequal_stages() -> Placement:
    """Return the measured stages, each cut in two, as a wave."""
    return place(read_stages(MEASURED / "gpt3_2.7b.yaml"), "wave_shape").placement


def best_of_stages() -> tuple[str, Schedule]:
    """Return the shortest schedule by hand that fits the memory: on the wave, or with one stage a device."""
    stages = read_stages(MEASURED / "gpt3_2.7b.yaml")
    made: dict[str, Schedule] = {}
    for shape in ("v_shape", "loop_shape", "wave_shape"):
        made |= applicable(place(stages, shape).placement, 16)
    return min(made.items(), key=lambda item: item[1].placement.ms(item[1].makespan))


def stages_case(work_limit: float = 30) -> tuple[Case, Schedule]:
    """Search the order of whole backwards, as they were measured; return its schedule too."""
    placement = unequal_stages()
    answer = search(placement, 16, work_limit=work_limit)
    assert answer.schedule is not None
    (name, best), schedule = best_of_stages(), answer.schedule
    times = (best.placement.ms(best.makespan), placement.ms(answer.makespan_bound))
    return Case(placement.ms(schedule.makespan), name, *times, work_limit), schedule


def picture(schedule: Schedule) -> bytes:
    """Return both schedules of the unequal stages, one above the other, as PNG."""
    name, best = best_of_stages()
    named = {
        f"{title}: {_ms(made.placement.ms(made.makespan))}": made
        for title, made in {f"{TITLES[name]}, the best by hand": best, "searched": schedule}.items()
    }
    shown = {
        title: replace(made, placement=replace(made.placement, name=title)) for title, made in named.items()
    }
    return image(draw_timelines(shown), "png")


def with_figures(readme: str, record: Mapping[str, Any], board: Mapping[str, Any]) -> str:
    """Return the README with the table of the recorded cases, and the errors of predicted times."""
    heads = "one iteration", "best by hand that fits", "searched", "no schedule is shorter than"
    rows = []
    for name, title in CASES.items():
        case = Case(**record["cases"][name])
        less = 100 * (1 - case.searched_ms / case.by_hand_ms)
        by_hand = f"{_ms(case.by_hand_ms)} ({TITLES[case.by_hand]})"
        rows.append((title, by_hand, f"**{_ms(case.searched_ms)}**, {less:.1f} % less", _ms(case.bound_ms)))
    steady = (
        "In steady state the first case takes {searched_ms:.1f} ms a micro-batch, the best by hand "
        "{by_hand_ms:.1f} ms; no schedule takes less than {bound_ms:.1f} ms."
    )
    (errors,) = (row for row in board["rows"] if row["table"] == "b200_layers.csv")
    predicted = (
        "Predicted times of 22 measured runs on 8 B200 are off by {time_error_percent:.1f} % on average "
        "(SimuMax: {peer_time_error_percent:.1f} %); of [other runs](docs/concepts/is_it_right.md) by more."
    )
    texts = steady.format_map(record["steady"]), predicted.format_map(errors)
    text = "\n\n".join([markdown_table(heads, rows), *texts]) + "\n"
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


def _ms(time_ms: float) -> str:
    return f"{time_ms:,.1f} ms" if time_ms < 1000 else f"{time_ms:,.0f} ms"


def main() -> None:
    """Search all cases, record them, draw the picture and write the table."""
    memory, steady = memory_case()
    stages, schedule = stages_case()
    cases = {"memory": memory, "sequences": sequences_case(), "stages": stages}
    known = {name: asdict(case) for name, case in cases.items()}
    record = {"commit": commit(), "cases": known, "steady": steady}
    write_json(RECORD, record)
    write_bytes(PICTURE, picture(schedule))
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    write_text(README, with_figures(README.read_text(encoding="utf-8"), record, board))


if __name__ == "__main__":
    main()
