"""Checker of the data set; needs Python 3.11 and no packages. SCHEMA.md has the rules.

``python check.py`` checks all problems, answers and bounds, and prints the table by class; with names of
classes or problems, only these. ``python check.py NAME answer.json`` checks an answer and compares it with
the best known.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import sys
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

FOLDER = Path(__file__).resolve().parent
FIGURES = ("period", "makespan", "device_span")

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
    problems: dict[str, Json] = {}
    for path in sorted((folder / "problems").glob("*/*.json")):
        problem = read_json(path)
        try:
            fault = _fault(problem, path)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            fault = f"is not of the form in schema.json: {error!r}"
        if fault:
            raise CheckError(f"{path}: {fault}")
        problems[problem["name"]] = problem
    return problems


def _fault(problem: Json, path: Path) -> str:
    """Return how a problem breaks the rules; empty if it keeps them."""
    if (problem["class"], problem["name"]) != (path.parent.name, path.stem):
        return "class and name are not those of the folder and the file; give those"
    if problem["held_out"] is not (hashlib.sha256(path.stem.encode()).digest()[0] % 3 == 0):
        return f"held_out: the name decides it (SCHEMA.md); give {not problem['held_out']}"
    devices = {*range(problem["num_devices"])}
    if len(problem["memory"]) != len(devices):
        return f"memory: give a limit for each of {len(devices)} devices"
    after: dict[str, list[str]] = {}
    net = [0 for _ in devices]
    for block in problem["blocks"]:
        where = f"blocks: {block['name']}: "
        if block["name"] in after or block["time"] < 1 or not set() < {*block["devices"]} <= devices:
            return where + f"give an unused name, a time of 1 tick or more, and devices below {len(devices)}"
        if unknown := [name for name in block["after"] if name not in after]:
            return where + f"after: no block before it is {unknown[0]!r}"
        after[block["name"]] = block["after"]
        for device in block["devices"]:
            net[device] += block["memory"]
    if any(net):
        return f"memory: the blocks of a micro-batch hold {net} at their end; it must be 0 on each device"
    wrong = [[a, b] for a, b, ticks in problem["transfer"] if a not in after[b] or ticks < 0]
    return f"transfer: {wrong[0]} is not an input and its block" if wrong else ""


def delays(problem: Json) -> list[tuple[str, str, int]]:
    """Return triples: block, its input, least ticks from the input's start to the block's."""
    time = {block["name"]: block["time"] for block in problem["blocks"]}
    transfer = {(a, b): ticks for a, b, ticks in problem["transfer"]}
    pairs = [(block["name"], name) for block in problem["blocks"] for name in block["after"]]
    return [(block, name, time[name] + transfer.get((name, block), 0)) for block, name in pairs]


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


def starts_in_order(problem: Json, orders: list[str], begins: list[int]) -> Mapping[str, list[int]]:
    """Start every block as early as its devices' orders and begins and its inputs allow."""
    blocks = {block["name"]: block for block in problem["blocks"]}
    numbers = range(problem["num_micro_batches"])
    queues: dict[tuple[int, str], list[tuple[str, int]]] = defaultdict(list)
    for device, text in enumerate(orders):
        following: dict[str, int] = defaultdict(int)
        seen = set()
        for word in text.split():
            name, _, number = word.partition("@")
            n = int(number) if number else following[name]
            following[name] = n + 1
            seen.add((name, n))
            queues[device, blocks[name].get("stream", "compute")].append((name, n))
        here = {(name, n) for name, block in blocks.items() if device in block["devices"] for n in numbers}
        if seen != here or len(text.split()) != len(here):
            raise CheckError(f"device {device} does not run each of its blocks once for each micro-batch")
    inputs: dict[str, list[tuple[str, int]]] = defaultdict(list)
    wakes = {name: lanes_of(block) for name, block in blocks.items()}
    for name, earlier, ticks in delays(problem):
        inputs[name].append((earlier, ticks))
        wakes[earlier] = wakes[earlier] + lanes_of(blocks[name])
    free = {lane: begins[lane[0]] for lane in queues}
    place = dict.fromkeys(queues, 0)
    starts = {name: [-1] * len(numbers) for name in blocks}
    waiting = list(queues)
    while waiting:
        lane = waiting.pop()
        if place[lane] == len(queues[lane]):
            continue
        name, n = queues[lane][place[lane]]
        lanes = lanes_of(blocks[name])
        is_first = all(queues[needed][place[needed]] == (name, n) for needed in lanes)
        if is_first and all(starts[earlier][n] >= 0 for earlier, _ in inputs[name]):
            arrivals = [starts[earlier][n] + ticks for earlier, ticks in inputs[name]]
            starts[name][n] = max([free[needed] for needed in lanes] + arrivals)
            for needed in lanes:
                place[needed] += 1
                free[needed] = starts[name][n] + blocks[name]["time"]
            waiting += wakes[name]
    for lane, queue in queues.items():
        if place[lane] < len(queue):
            name, n = queue[place[lane]]
            raise CheckError(f"orders: {name} of micro-batch {n} and a block before it wait for each other")
    return starts


def check_schedule(problem: Json, starts: Mapping[str, list[int]]) -> None:
    """Check the inputs of blocks, the exclusive use of each device's streams, and memory over time.

    Starts are in ticks, for each micro-batch of each block.
    """
    for name, earlier, ticks in delays(problem):
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
    for (device, stream), here in runs.items():
        for (_, end, name), (start, _, later) in pairwise(sorted(here)):
            if start < end:
                where = f"device {device}, stream {stream}"
                raise CheckError(f"{later} starts at {start} on {where}, where {name} runs until {end}")
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
    except CheckError as error:
        raise CheckError(f"{problem['name']}: {figure}: {error}") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CheckError(f"{problem['name']}: {figure}: is not as in SCHEMA.md: {error!r}") from None


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
    rounds = [k * period for k in range((max(ticks) - min(ticks)) // period + 2)]
    check_schedule(problem, {name: [s + k for k in rounds for s in first[name]] for name in first})
    return Fraction(period, size)


def _span(problem: Json, figure: str, answers: Json) -> Fraction:
    """Return the ticks from first start to last end: of all devices, or the most of a single one."""
    answer, devices = answers[figure], range(problem["num_devices"])
    if "starts" in answer:
        starts = _complete(problem, answer["starts"], problem["num_micro_batches"])
    else:
        begins = answer.get("begins", [0 for _ in devices])
        if [len(answer["orders"]), *map(type, begins)] != [len(devices), *(int for _ in devices)]:
            raise CheckError(f"give each of {len(devices)} devices its orders, and its begin in whole ticks")
        starts = starts_in_order(problem, answer["orders"], begins)
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
        gaps = [f"{100 * float(mean(of_figure) - 1):.2f} %" for of_figure in ratios]
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
    unknown = {*names} - {key for problem in some for key in (problem["name"], problem["class"])}
    unknown |= {path.stem for path in sent} - problems.keys() | best.keys() ^ problems.keys()
    if unknown:
        raise CheckError(f"{min(unknown)}: is no class or problem, or is not in best_known.json")
    if answer:
        return compare(problems[names[0]], read_json(answer), best[names[0]])
    stored = {group: answers_of(group) for group in dict.fromkeys(problem["class"] for problem in some)}
    for problem in some:
        answers = stored[problem["class"]].get(problem["name"], {})
        compare(problem, answers, best[problem["name"]], is_stored=True)
    lines = [compare(problems[path.stem], read_json(path), best[path.stem]) for path in sent]
    return "".join([table(some, best), *lines, f"{len(some)} problems: answers and bounds are right\n"])


if __name__ == "__main__":
    try:
        sys.stdout.write(main(sys.argv[1:]))
    except CheckError as error:
        sys.exit(str(error))
