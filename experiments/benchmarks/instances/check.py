"""Checker of the data set; needs Python 3.11 and no packages. SCHEMA.md has the rules.

``python check.py`` checks all problems, answers and bounds, and prints the table by class; with names of
classes or problems, only these. ``python check.py NAME answer.json`` checks an answer and compares it with
the best known.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
FIGURES = ("period", "makespan", "device_span")
FAULTS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

Json = dict[str, Any]


class CheckError(ValueError):
    """A file breaks a rule; the message is one line."""


def read_json(path: Path) -> Any:
    """Return the data of a JSON file, which xz may have packed."""
    try:
        data = path.read_bytes()
        return json.loads(lzma.decompress(data) if path.suffix == ".xz" else data)
    except (OSError, lzma.LZMAError, ValueError) as error:
        raise CheckError(f"{path}: cannot be read as JSON ({error})") from None


def read_problems(folder: Path = FOLDER) -> dict[str, Json]:
    """Return the problems of a folder by name, in the order of classes and names."""
    return {path.stem: read_json(path) for path in sorted((folder / "problems").glob("*/*.json"))}


def lanes_of(block: Json) -> list[tuple[int, str]]:
    """Return the devices of a block, each with the stream that it runs on."""
    return [(device, block.get("stream", "compute")) for device in block["devices"]]


def load_bound(problem: Json, figure: str) -> int:
    """Return the ticks of the busiest stream of a device: for one micro-batch (period), or for all."""
    ticks: dict[tuple[int, str], int] = defaultdict(int)
    for block in problem["blocks"]:
        for lane in lanes_of(block):
            ticks[lane] += block["time"]
    return max(ticks.values()) * (1 if figure == "period" else problem["num_micro_batches"])


def check_schedule(problem: Json, starts: Mapping[str, list[int]]) -> None:
    """Check the inputs of blocks, the exclusive use of each device's streams, and memory over time.

    Starts are in ticks, for each micro-batch of each block.
    """
    time = {block["name"]: block["time"] for block in problem["blocks"]}
    transfer = {(a, b): ticks for a, b, ticks in problem["transfer"]}
    for earlier, name in ((name, block["name"]) for block in problem["blocks"] for name in block["after"]):
        ticks = time[earlier] + transfer.get((earlier, name), 0)
        for n, (start, before) in enumerate(zip(starts[name], starts[earlier], strict=True)):
            if start < before + ticks:
                arrival = f"its input {earlier} arrives at {before + ticks}"
                raise CheckError(f"{name} of micro-batch {n} starts at {start}, {arrival}")
    runs = defaultdict(list)
    changes: list[dict[int, int]] = [defaultdict(int) for _ in problem["memory"]]
    for block in problem["blocks"]:
        for lane in lanes_of(block):
            for n, start in enumerate(starts[block["name"]]):
                runs[lane].append((start, start + block["time"], f"{block['name']} of micro-batch {n}"))
                changes[lane[0]][start] += block["memory"]
    for (device, _), here in runs.items():
        for (_, end, name), (start, _, later) in pairwise(sorted(here)):
            if start < end:
                raise CheckError(f"{later} starts at {start} on device {device}, {name} runs until {end}")
    for device, capacity in enumerate(problem["memory"]):
        held = problem.get("static_memory", [0] * (device + 1))[device]
        for tick in sorted(changes[device]):
            held += changes[device][tick]
            if held > capacity:
                raise CheckError(f"device {device} holds {held} units of memory at {tick}, of {capacity}")


def checked_value(problem: Json, figure: str, answers: Json) -> Fraction:
    """Return the value of one figure that an answer reaches; raise an error if it breaks a rule."""
    try:
        return (_period if figure == "period" else _span)(problem, figure, answers)
    except FAULTS as error:
        fault = error if isinstance(error, CheckError) else f"is not as in SCHEMA.md: {error!r}"
        raise CheckError(f"{problem['name']}: {figure}: {fault}") from None


def _complete(problem: Json, starts: Mapping[str, list[int]], number: int) -> Mapping[str, list[int]]:
    if starts.keys() != {block["name"] for block in problem["blocks"]}:
        raise CheckError("the starts do not name exactly the blocks of the problem")
    for name, ticks in starts.items():
        if len(ticks) != number or not ticks or any(type(start) is not int for start in ticks):
            raise CheckError(f"{name} needs a start in whole ticks for each of {number} micro-batches")
    return starts


def _period(problem: Json, figure: str, answers: Json) -> Fraction:
    """Return ticks per micro-batch of a repetend, after a check of all rounds that can overlap."""
    size, period = answers[figure]["micro_batches"], answers[figure]["period"]
    first = _complete(problem, answers[figure]["first_starts"], size)
    if period < (work := load_bound(problem, figure) * size):
        raise CheckError(f"a device has {work} ticks of work, more than the period of {period}")
    ticks = [start for starts in first.values() for start in starts]
    if (overlapping := (max(ticks) - min(ticks)) // period) > 1000:
        raise CheckError(f"{overlapping} rounds overlap, more than 1000; start blocks sooner")
    rounds = [k * period for k in range(overlapping + 2)]
    check_schedule(problem, {name: [s + k for k in rounds for s in first[name]] for name in first})
    return Fraction(period, size)


def _span(problem: Json, figure: str, answers: Json) -> Fraction:
    """Return the ticks from first start to last end: of all devices, or the most of a single one."""
    starts = _complete(problem, answers[figure]["starts"], problem["num_micro_batches"])
    check_schedule(problem, starts)
    ends: dict[int, list[int]] = defaultdict(list)
    for block in problem["blocks"]:
        for device in block["devices"] if figure == "device_span" else [0]:
            ends[device] += [min(starts[block["name"]]), max(starts[block["name"]]) + block["time"]]
    return Fraction(max(max(ticks) - min(ticks) for ticks in ends.values()))


def answers_of(group: str, folder: Path = FOLDER) -> Json:
    """Return the stored answers to the problems of a class, by name, then by figure; empty without a file."""
    path = folder / "answers" / f"{group}.json.xz"
    return dict(read_json(path)) if path.exists() else {}


def compare(problem: Json, answers: Json, best: Json, *, is_stored: bool = False) -> str:
    """Check answers and bounds; return a line for each figure on how it compares with the best known."""
    lines, figures = [], [name for name in FIGURES if is_stored or name in answers]
    if not figures:
        raise CheckError(f"{problem['name']}: the answer has none of {', '.join(FIGURES)}")
    for figure in figures:
        value, known = checked_value(problem, figure, answers), best[figure]
        where = f"{problem['name']}: {figure}"
        best_value, bound = Fraction(known["value"]), Fraction(known["bound"])
        if value < bound:
            raise CheckError(f"{where}: {value} is below the bound, {bound}; one of them is wrong")
        if known["bound_by"] == "load" and bound != load_bound(problem, figure):
            raise CheckError(f"{where}: the load proves {load_bound(problem, figure)}, not {bound}")
        if is_stored and value != best_value:
            raise CheckError(f"{where}: the answer reaches {value}, not {best_value}")
        words = "better than" if value < best_value else "worse than" if value > best_value else "equal to"
        lines.append(f"{where} {value} is {words} the best known, {best_value}; the bound is {bound}\n")
    return "".join(lines)


def table(problems: list[Json], best: Json) -> str:
    """Return a table by class: values that meet their bound, and mean gaps to the bounds in percent."""
    heads = ("class", "problems", "held out", "devices", "periods proved", "makespans proved")
    rows: list[list[object]] = [[*heads, "period", "makespan", "device span"], ["---"] * 9]
    for group in [*dict.fromkeys(problem["class"] for problem in problems), "all"]:
        some = [problem for problem in problems if group in ("all", problem["class"])]
        devices = sorted(problem["num_devices"] for problem in some)
        known = [[best[problem["name"]][figure] for problem in some] for figure in FIGURES]
        ratios = [[Fraction(row["value"]) / Fraction(row["bound"]) for row in rows_of] for rows_of in known]
        gaps = [f"{100 * float(sum(of_figure) / len(some) - 1):.2f} %" for of_figure in ratios]
        proved = [of_figure.count(Fraction(1)) for of_figure in ratios[:2]]
        counts = [len(some), sum(problem["held_out"] for problem in some), f"{devices[0]} to {devices[-1]}"]
        rows.append([group, *counts, *proved, *gaps])
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


def main(names: list[str]) -> str:
    """Return the text of a check of everything, of some classes or problems, or of one answer."""
    problems, best = read_problems(), read_json(FOLDER / "best_known.json")
    answer = Path(names.pop()) if len(names) == 2 and names[1].endswith(".json") else None
    some = [p for p in problems.values() if not names or {p["name"], p["class"]} & {*names}]
    sent = [] if names else sorted((FOLDER / "sent").glob("*.json"))
    classes = set() if answer else {p["class"] for p in problems.values()}
    named = {*names} - classes | {path.stem for path in sent}
    if unknown := named - problems.keys() | best.keys() ^ problems.keys():
        raise CheckError(f"{min(unknown)}: is no class or problem, or is not in best_known.json")
    if answer:
        return compare(problems[names[0]], read_json(answer), best[names[0]])
    stored = {n: answers for group in {p["class"] for p in some} for n, answers in answers_of(group).items()}
    for problem in some:
        compare(problem, stored.get(problem["name"], {}), best[problem["name"]], is_stored=True)
    lines = [compare(problems[path.stem], read_json(path), best[path.stem]) for path in sent]
    return "".join([table(some, best), *lines, f"{len(some)} problems: answers and bounds are right\n"])


if __name__ == "__main__":
    try:
        sys.stdout.write(main(sys.argv[1:]))
    except FAULTS as error:
        sys.exit(str(error) if isinstance(error, CheckError) else f"not as in schema.json: {error!r}")
