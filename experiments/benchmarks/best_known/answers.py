"""Problems of the data set as placements, and the storage of answers that are better than the best known."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path

from experiments.benchmarks.instances import check
from experiments.benchmarks.instances.check import FIGURES, FOLDER, CheckError, Json
from placements import Placement, PlacementError
from placements.forms.texts import write_bytes, write_text
from placements.placement_file import placement_from_dict
from schedsearch.device_span import with_least_device_span
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule

_ABOUT = ("class", "held_out", "quick", "source", "num_micro_batches")
"""Fields of a problem that a placement file does not have."""

RECORD = ("who", "date", "version", "method", "seconds")
"""Fields of ``best_known.json`` on the search that found an answer."""


@cache
def named_problem(name: str) -> Json:
    """Return a problem of the data set by its name."""
    problems = check.read_problems()
    if name not in problems:
        raise CheckError(f"instance: {name!r} is not in the library; see the folders in {FOLDER}/problems")
    return problems[name]


def placement_of_problem(problem: Json) -> Placement:
    """Return the blocks of a problem on devices, with transfers and memory limits."""
    try:
        return placement_from_dict({key: value for key, value in problem.items() if key not in _ABOUT})
    except PlacementError as error:
        raise CheckError(f"problems/{problem['class']}/{problem['name']}.json: {error}") from None


def answers_from(candidate: Repetend | Schedule) -> Json:
    """Return a repetend or schedule as an answer file has it, by figure."""
    if isinstance(candidate, Schedule):
        schedules = {"makespan": candidate, "device_span": with_least_device_span(candidate)}
        return {figure: {"starts": _by_block(schedule.start_of)} for figure, schedule in schedules.items()}
    starts, size = _by_block(candidate.first_starts), candidate.micro_batches
    return {"period": {"micro_batches": size, "period": candidate.period, "first_starts": starts}}


def _by_block(starts: Mapping[tuple[str, int], int]) -> dict[str, list[int]]:
    """Return for each block the starts of its micro-batches."""
    blocks: dict[str, list[int]] = {}
    for (name, _), ticks in sorted(starts.items()):
        blocks.setdefault(name, []).append(int(ticks))
    return blocks


def keep(
    folder: Path, problem: Json, answers: Json, record: Json, bounds: Mapping[str, Fraction]
) -> list[str]:
    """Check and write answers that are better than the best known, and greater bounds; return their figures.

    Args:
        folder: The data set.
        problem: Problem that was searched.
        answers: Answers by figure, as in SCHEMA.md.
        record: The fields of `RECORD`.
        bounds: Lower bounds by figure that the search proved.

    Raises:
        CheckError: An answer breaks a rule, or is better than a bound.
    """
    name, known = problem["name"], check.read_json(folder / "best_known.json")
    best, better = dict(known.get(name, {})), []
    for figure in FIGURES:
        bound = {"bound": check.load_bound(problem, figure), "bound_by": "load", "bound_date": record["date"]}
        row = {"value": None, **record, **bound} | best.get(figure, {})
        if figure in answers:
            value = check.checked_value(problem, figure, answers)
            if row["value"] is None or value < Fraction(row["value"]):
                row |= {"value": _plain(value), **record}
                better.append(figure)
        if bounds.get(figure, 0) > Fraction(row["bound"]):
            row |= {"bound": _plain(bounds[figure]), "bound_by": "search", "bound_date": record["date"]}
        if row["value"] is not None:
            best[figure] = row
            if Fraction(row["value"]) < Fraction(row["bound"]):
                fault = f"{row['value']} is below the bound, {row['bound']}; one of them is wrong"
                raise CheckError(f"{name}: {figure}: {fault}")
    if better:  # the answers are written first, so that the table never claims more than they reach
        stored = check.answers_of(problem["class"], folder)
        stored[name] = stored.get(name, {}) | {figure: answers[figure] for figure in better}
        text = json.dumps(stored, sort_keys=True, separators=(",", ":"))
        write_bytes(folder / "answers" / f"{problem['class']}.json.xz", lzma.compress(text.encode()))
    if best != known.get(name, {}):
        write_text(folder / "best_known.json", _as_text(known | {name: best}))
    return better


def _plain(value: Fraction) -> int | str:
    """Return a value as it is in JSON: a whole number, or a fraction as text."""
    return int(value) if value.denominator == 1 else str(value)


def _as_text(best: Mapping[str, Json]) -> str:
    """Return ``best_known.json`` with a line for each figure."""
    problems = []
    for name, figures in sorted(best.items()):
        lines = (f"\n  {json.dumps(figure)}: {json.dumps(row)}" for figure, row in figures.items())
        problems.append(f" {json.dumps(name)}: {{{','.join(lines)}}}")
    return "{\n" + ",\n".join(problems) + "\n}\n"
