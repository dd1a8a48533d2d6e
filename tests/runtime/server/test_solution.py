"""A server that is started from a plan that was chosen."""

import json
from pathlib import Path

import pytest
from served import ask, in_thread, profile_of, small_schedule

from placements.shapes import v_shape
from runtime.server.__main__ import main
from runtime.server.bodies import RequestError, read_solution
from runtime.server.service import Service
from schedsearch.energy import compute_frontier
from schedsearch.schedule_file import schedule_to_dict

FRONTIER = compute_frontier(small_schedule(), profile_of(v_shape(2)), num_plans=20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `schedsearch frontier` leaves behind; the chosen plan is the one of least energy."""
    (tmp_path / "schedule.json").write_text(json.dumps(schedule_to_dict(small_schedule())))
    (tmp_path / "frontier.json").write_text(json.dumps(FRONTIER.to_dict()))
    chosen = FRONTIER.to_dict()["plans"][-1]
    (tmp_path / "plan.json").write_text(json.dumps(chosen | {"schema_version": 1, "deadline_ms": 1.0}))
    return tmp_path


def test_the_chosen_plan_is_deployed_at_once_and_stays(folder: Path, tmp_path: Path) -> None:
    service = Service(tmp_path / "own.db")
    status = service.add(*read_solution(folder / "plan.json"))
    assert (status.state, status.version) == ("ready", 1)
    chosen = json.loads((folder / "plan.json").read_text())
    with in_thread(service) as url:
        _, deployed = ask(f"{url}/jobs/{status.id}/deployed")
        assert deployed["clock_mhz"] == chosen["clock_mhz"] and deployed["time_ms"] == chosen["time_ms"]
        _, told = ask(f"{url}/jobs/{status.id}/straggler", "POST", {"id": 1, "degree": 9})
        assert told["version"] == 1, "there is no other plan"


def test_a_frontier_has_plans_for_stragglers(folder: Path, tmp_path: Path) -> None:
    service = Service(tmp_path / "own.db")
    status = service.add(*read_solution(folder / "frontier.json"))
    assert service.frontier(status.id)["plans"] == FRONTIER.to_dict()["plans"]
    service.close()


def test_wrong_files_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(plan | {"clock_mhz": {"F9": [900]}}))
    with pytest.raises(RequestError, match="solution: only plan or schedule has block 'B0'; give its own"):
        read_solution(folder / "plan.json")
    del plan["clock_mhz"]
    (folder / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(RequestError, match=r"plan.json: clock_mhz: is missing; give the plan.json"):
        read_solution(folder / "plan.json")
    (folder / "schedule.json").unlink()
    options = ["--port", "0", "--database", str(folder / "other.db")]
    with pytest.raises(SystemExit) as ended:
        main([*options, "--solution", str(folder / "frontier.json")])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"runtime.server: error: {folder / 'schedule.json'}")
