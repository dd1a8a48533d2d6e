"""The command: search the instances, check the stored answers, add one, compare versions of the search."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from experiments.benchmarks.benchmark_command import add_options, go_through, goes_on
from experiments.benchmarks.instances.answers import AnswerError, InstanceAnswer, Library
from experiments.benchmarks.instances.instance_file import FOLDER, Instance, InstanceError, read_instances
from experiments.benchmarks.instances.measuring import BY_HAND, InstanceRow, made_by_hand, searched
from experiments.benchmarks.instances.tables import gaps, history, markdown
from experiments.benchmarks.results import ResultsError, read_rows, resumed
from experiments.benchmarks.timing import load_solvers
from experiments.config.command import INTERRUPTED
from experiments.config.machine import commit, machine
from placements.files import write_json, write_text
from schedsearch.schedule import Schedule
from schedsearch.schedule_file import ScheduleFileError, read_schedule

NAMES_HELP = "groups or instances; default: all"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="experiments.benchmarks.instances",
        description="Named placements with the best answers known; see README.md beside this module.",
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of instances and answers (%(default)s)")
    actions = parser.add_subparsers(metavar="action", required=True)

    def action(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    search = action("search", _search, "search instances and report the gaps; goes on where it ended")
    add_instances(search, "outputs/instances.json")
    search.add_argument("--limit", type=float, default=20.0, metavar="S", help="seconds each (%(default)s)")
    search.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N - 1 (%(default)s)")
    search.add_argument("--by-hand", action="store_true", help="the hand-made schedules, too")
    better = "keep answers that are better than the best known"
    search.add_argument("--update", action="store_true", help=better)
    search.add_argument("--version", default="", help="name of this version (default: the commit)")
    check = action("check", _check, "rebuild every stored answer and compare it with best_known.csv")
    check.add_argument("instances", nargs="*", metavar="name", help=NAMES_HELP)
    add = action("add", _add, "keep a schedule found elsewhere, where it is better")
    add.add_argument("instance", help="its name")
    add.add_argument("schedule", type=Path, help="a schedule.json")
    add.add_argument("--found-by", required=True, help="who or what found it")
    table = action("table", _table, "compare results files: the history of versions, in Markdown")
    table.add_argument("results", nargs="+", type=Path, help="results files of 'search', oldest first")
    options = parser.parse_args(arguments)
    if options.run is _search and not options.limit > 0:
        parser.error(f"--limit: {options.limit:g} is not a positive number of seconds")
    if options.run is _search and options.seeds < 1:
        parser.error(f"--seeds: {options.seeds} is not at least 1")
    try:
        return int(options.run(options))
    except (InstanceError, AnswerError, ResultsError, ScheduleFileError) as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")


def add_instances(parser: argparse.ArgumentParser, output: str) -> None:
    """Add the arguments of a command that searches instances and writes a results file."""
    parser.add_argument("instances", nargs="*", metavar="name", help=NAMES_HELP)
    add_options(parser, "the twenty for every day", output)


def chosen_instances(folder: Path, names: Sequence[str]) -> list[Instance]:
    """Return the instances of some groups or names; all where there are none."""
    instances = read_instances(sorted(folder.glob("*.yaml")))
    known = {name for each in instances for name in (each.name, each.group)}
    for name in names:
        if name not in known:
            groups = ", ".join(sorted({each.group for each in instances}))
            raise InstanceError(f"name: {name!r} is no group or instance; the groups are {groups}")
    return [each for each in instances if not names or each.name in names or each.group in names]


def by_turns(instances: Sequence[Instance], *, quick: bool) -> list[Instance]:
    """Return the instances so that each group comes by turns: a run that is cut short has some of each."""
    groups: dict[str, list[Instance]] = {}
    for each in instances:
        groups.setdefault(each.group, []).append(each)
    turns = zip_longest(*groups.values())
    return [each for turn in turns for each in turn if each is not None and (each.is_quick or not quick)]


def _search(options: argparse.Namespace) -> int:
    chosen = chosen_instances(options.folder, options.instances)
    instances = by_turns(chosen, quick=options.quick)
    library = Library(options.folder)
    run: dict[str, Any] = {
        "schema_version": 1,
        "version": options.version or commit(),
        "time_limit_s": options.limit,
        "machine": machine(),
    }
    run, rows = resumed(options.output, run, InstanceRow)
    work = [(each, "search", seed) for seed in range(options.seeds) for each in instances]
    if options.by_hand:
        work = [(each, BY_HAND, 0) for each in instances] + work
    done = {(row.instance, row.method, row.seed) for row in rows}
    load_solvers()
    _write(options.output, run, rows, library)

    def step(instance: Instance, method: str, seed: int) -> str:
        if (instance.name, method, seed) in done:
            return ""
        if method == BY_HAND:
            row, found = made_by_hand(instance, run["version"])
        else:
            row, found = searched(instance, seed, options.limit, run["version"])
        better = [library.offer(instance, each) for each in found] if options.update else []
        rows.append(row)
        _write(options.output, run, rows, library)
        return _line(row, {figure for figures in better for figure in figures})

    steps = [(f"{each[0].name}, {each[1]}, seed {each[2]}", partial(step, *each)) for each in work]
    if not go_through("instances", steps, goes_on(options.output)):
        return INTERRUPTED
    sys.stdout.write(markdown(rows, library.best) + f"results in {options.output}\n")
    return 0


def _line(row: InstanceRow, better: set[str]) -> str:
    return (
        f"{row.instance} {row.method} {row.seed}: {row.status} period {row.period} ({row.period_bound}), "
        f"makespan {row.makespan} ({row.makespan_bound}), device span {row.device_span}, {row.seconds} s"
        + (f"; better: {', '.join(sorted(better))}" if better else "")
    )


def _write(path: Path, run: dict[str, Any], rows: Sequence[InstanceRow], library: Library) -> None:
    """Write the rows so far, and the gaps as a table beside them."""
    mean_gaps = gaps([row for row in rows if row.method != BY_HAND], library.best)
    write_json(path, run | {"gaps": mean_gaps, "rows": [asdict(row) for row in rows]})
    about = f"version {run['version']}, {run['time_limit_s']:g} s each; {run['machine']}"
    write_text(path.with_suffix(".md"), f"{about}\n\n{markdown(rows, library.best)}")


def _check(options: argparse.Namespace) -> int:
    library, instances = Library(options.folder), chosen_instances(options.folder, options.instances)
    strangers = sorted(library.best.keys() - {each.name for each in instances})
    if strangers and not options.instances:
        raise AnswerError(f"{strangers[0]}: is in best_known.csv and is no instance; remove the row")
    steps = [(each.name, partial(_checked, library, each)) for each in instances]
    if not go_through("check", steps, "nothing was changed"):
        return INTERRUPTED
    text = "every stored answer is valid and reaches what is written"
    sys.stdout.write(f"{len(instances)} instances: {text}\n")
    return 0


def _checked(library: Library, instance: Instance) -> str:
    library.check(instance)
    return ""


def _add(options: argparse.Namespace) -> int:
    (instance,) = [
        each for each in chosen_instances(options.folder, [options.instance]) if each.name == options.instance
    ]
    given = read_schedule(options.schedule)
    schedule = Schedule(instance.placement, instance.num_micro_batches, given.blocks)
    better = Library(options.folder).offer(
        instance, InstanceAnswer(options.found_by, commit(), schedules=(schedule,))
    )
    sys.stdout.write(f"{instance.name}: {'better: ' + ', '.join(better) if better else 'no better'}\n")
    return 0


def _table(options: argparse.Namespace) -> int:
    runs = {}
    for path in options.results:
        run, rows = read_rows(path, InstanceRow)
        runs[str(run["version"])] = rows
    sys.stdout.write(history(runs, Library(options.folder).best))
    return 0
