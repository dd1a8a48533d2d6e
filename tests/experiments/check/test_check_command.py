import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import one_line_error

from placements.forms.texts import write_json
from placements.shapes import v_shape, x_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.schedule_file import schedule_to_dict
from schedsearch.searches.search import search

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def proved() -> dict[str, Any]:
    """A file of a V-shape whose period was proved by refuting a shorter one."""
    result = search(v_shape().with_memory(3), 4, micro_batches_per_repetend=1, objectives=["period"])
    return schedule_to_dict(result.schedule, result)


@pytest.fixture
def checked(command: Command, tmp_path: Path) -> Command:
    def run(data: dict[str, Any], *overrides: str) -> subprocess.CompletedProcess[str]:
        return command("check", f"schedule={write_json(tmp_path / 'schedule.json', data)}", *overrides)

    return run


@pytest.mark.always
def test_a_proved_file_holds_claim_by_claim(checked: Command, proved: dict[str, Any], tmp_path: Path) -> None:
    done = checked(proved)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[1].split()[0] for line in lines[:-1]] == [
        *(
            "schedule",
            "makespan_bound",
            "device_span_bound",
            "span_bound",
            "repetend",
            "load",
            "memory",
            "refutation",
            "bound",
        )
    ]
    assert all(line.startswith("holds: ") for line in lines[:-1])
    assert lines[-1] == "period proved: 8 ms per micro-batch is the least"
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"schedule.json"}


def test_out_of_time_is_a_failure_not_an_error(checked: Command, proved: dict[str, Any]) -> None:
    done = checked(proved, "time_limit_s=1e-6")
    assert done.returncode == 1
    assert done.stderr == "check: 2 claims of the certificate not rechecked; none was found to be false\n"
    assert "not rechecked: refutation by portfolio: no repetend of 1 micro-batch has" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("is the least if what is not rechecked is true")


def test_bounds_that_only_a_search_knows_are_rechecked_or_named(checked: Command) -> None:
    """The makespan is 34; the least is 33, of which 32 follow by adding up."""
    placement = x_shape(4, 1, 3).with_memory(3)
    result = search(placement, 3, micro_batches_per_repetend=1, objectives=["period"])
    assert result.schedule is not None and result.schedule.makespan > 33
    data = schedule_to_dict(result.schedule, result) | {"makespan_bound": 33}
    line = checked(data).stdout.splitlines()[1]
    assert line.startswith("holds: makespan_bound: no schedule of as many micro-batches takes less than 33")
    line = checked(data, "time_limit_s=1e-6").stdout.splitlines()[1]
    assert line.startswith("not rechecked: makespan_bound: no schedule of as many micro-batches takes less")
    assert "takes less than 34 ms, but there is one" in one_line_error(checked(data | {"makespan_bound": 34}))


def test_a_hand_made_schedule_claims_nothing_of_the_period(checked: Command) -> None:
    done = checked(schedule_to_dict(one_f_one_b(v_shape(2), 3)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "no certificate: no repetend is claimed"


def test_a_bound_that_is_not_met_is_feasible(checked: Command, proved: dict[str, Any]) -> None:
    weaker = proved["certificate"] | {"period_bound": [15, 2]}
    data = proved | {"certificate": weaker, "period_bound": 7.5}
    done = checked(data | {"search_status": "FEASIBLE"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("period not proved: 8 ms per micro-batch is above")
    assert "search_status: OPTIMAL, but the repetend's 8 ms" in one_line_error(checked(data))


def test_false_claims_are_errors_in_one_line(
    checked: Command, proved: dict[str, Any], tmp_path: Path
) -> None:
    false = {"reason": "refutation", "micro_batches": 1, "period": 8, "solver": "me"}
    certificate = proved["certificate"]
    for change, message in (
        ({"makespan": proved["makespan"] - 1}, "makespan: "),
        ({"device_span_bound": proved["device_span"] + 1}, "is above the device span"),
        ({"period_bound": 9}, "period_bound: 9 is not at most that of the certificate, 8"),
        ({"certificate": None}, "certificate: is missing, but the file claims a bound"),
        ({"certificate": certificate | {"reasons": [*certificate["reasons"], false]}}, "but there is one"),
        ({"certificate": certificate | {"reasons": []}}, "does not follow for 1 micro-batches"),
    ):
        line = one_line_error(checked(proved | change))
        assert line.startswith(f"check: error: {tmp_path / 'schedule.json'}: ")
        assert message in line


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "schedule: has no value; give one, as in schedule=VALUE"),
        (["schedule=none.json"], "none.json: cannot be read"),
        (["schedule=x", "time_limit_s=0"], "time_limit_s: 0 is not a number above 0"),
        (["schedul=x"], "schedul: is not an option of schedsearch check; did you mean schedule?"),
    ],
)
def test_wrong_options(overrides: list[str], message: str, refused: Callable[..., str]) -> None:
    assert message in refused("check", *overrides)
