"""Turns schedules into tables of torch.distributed.pipelining, and tables into schedules.

As a program::

    python -m runtime.torch_csv schedule.json schedule.csv
    python -m runtime.torch_csv schedule.csv schedule.json
    python -m runtime.torch_csv schedule.json schedule.csv --receives late
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from placements.forms.texts import write_json, write_text
from runtime.program.error_grid import UnsafeProgramsError
from runtime.torch_pipelining.check import check_order
from runtime.torch_pipelining.csv import NoTorchFormError, from_torch, times_of, torch_order
from runtime.torch_pipelining.receives import EAGER, LATE, with_receives
from runtime.torch_pipelining.streams import left_out
from runtime.torch_pipelining.table import TorchCsvError, read_torch_csv
from runtime.torch_pipelining.waits import waits_in_words
from schedsearch.schedule_file import ScheduleFileError, read_schedule, schedule_to_dict


def main(arguments: Sequence[str] | None = None) -> int:
    """Turn a ``schedule.json`` into a table or the other way round; return the exit code, 2 for an error."""
    parser = argparse.ArgumentParser("python -m runtime.torch_csv", description=main.__doc__)
    parser.add_argument("source", type=Path, help="a schedule.json, or a CSV of torch")
    parser.add_argument("target", type=Path, help="where to write the other one, with --receives a CSV")
    parser.add_argument(
        "--receives",
        type=_actions_ahead,
        metavar="WHEN",
        help="write sends and receives too: eager (as torch does), late, or at most N actions ahead",
    )
    options = parser.parse_args(arguments)
    source, target = options.source, options.target
    try:
        if target.resolve() == source.resolve():
            raise TorchCsvError(f"{target}: is the file that is read; choose another path to write to")
        if options.receives is not None and target.suffix == ".json":
            raise TorchCsvError(f"{target}: a schedule has no receives; name a CSV, or leave out --receives")
        schedule = read_schedule(source) if source.suffix == ".json" else None
        order = torch_order(schedule) if schedule else read_torch_csv(source)
        if options.receives is not None:
            order = with_receives(order, options.receives)
            check_order(order)
            waits = waits_in_words(order, times_of(schedule), "ms") if schedule else waits_in_words(order)
            sys.stdout.write(f"{target}: {waits}\n")
        if schedule is None and options.receives is None:
            write_json(target, schedule_to_dict(from_torch(order, source.stem)))
        else:
            write_text(target, str(order))
        if schedule and (lost := left_out(schedule, order)):
            sys.stderr.write(f"{target}: {lost}\n")
    except (ScheduleFileError, TorchCsvError) as error:
        sys.stderr.write(f"{error}\n")
    except (NoTorchFormError, UnsafeProgramsError) as error:
        sys.stderr.write(f"{source}: {str(error).splitlines()[0]}\n")
    except OSError as error:
        sys.stderr.write(f"{target}: cannot be written ({error.strerror}); choose another path\n")
    else:
        return 0
    return 2


def _actions_ahead(text: str) -> float:
    named = {"eager": EAGER, "late": LATE}
    if text not in named and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not eager, late or a number of actions")
    return named[text] if text in named else int(text)


if __name__ == "__main__":
    sys.exit(main())
