"""A simulation whose files are interrupted is neither lost nor taken for one that is done."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from signal import SIGINT, raise_signal

import pytest

from experiments.cluster import running
from experiments.cluster.options import (
    ClusterCommandOptions,
    FileTraceOptions,
    GpuClusterOptions,
    PolicyOptions,
)
from experiments.cluster.outcome_files import CLUSTER, JOBS, save_outcome
from experiments.cluster.running import Setting, SimulationPoint, check_points, jcts_before, run_point
from experiments.cluster.workload import read_data
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.simulator.simulation import FROM_KEYBOARD

POINT = SimulationPoint("las")
FREE = GpuClusterOptions({"v100": 1}, None, None, None, None)
NO_POLICY_OPTIONS = PolicyOptions(**dict.fromkeys(one.name for one in fields(PolicyOptions)))


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    (tmp_path / "own.csv").write_text("job_type,scale_factor,gpu_type,steps_per_s\na,1,v100,1\n")
    (tmp_path / "trace.csv").write_text("job_type,scale_factor,steps,arrival_s\na,1,900,0\na,1,900,10\n")
    given = dict.fromkeys(one.name for one in fields(ClusterCommandOptions))
    given |= {"cluster": FREE, "policy_options": NO_POLICY_OPTIONS, "policy": "las"}
    given |= {"round_s": 360.0, "recompute_s": 0.0, "checkpoint_s": 0.0, "restart_s": 0.0}
    given |= {"data": str(tmp_path / "own.csv")}
    options = ClusterCommandOptions(**given)
    trace = FileTraceOptions(path=str(tmp_path / "trace.csv"))
    return Setting(options, GpuCluster({"v100": 1}), read_data(options.data), trace, {})


def test_ctrl_c_while_files_are_written_waits_for_the_last(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: object) -> None:
        raise_signal(SIGINT)
        save_outcome(*given)

    monkeypatch.setattr(running, "save_outcome", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_point(POINT, setting, tmp_path / "las")
    assert jcts_before(POINT, setting, tmp_path / "las") == pytest.approx([1260.0, 1790.0])


def test_ctrl_c_in_a_simulation_keeps_what_there_is(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.StepBar, "__call__", lambda *_: raise_signal(SIGINT))
    found, _ = run_point(POINT, setting, tmp_path / "las")
    assert found.reason == FROM_KEYBOARD and found.end_s < 1790.0
    assert (tmp_path / "las" / CLUSTER).exists()
    assert jcts_before(POINT, setting, tmp_path / "las") is None, "it is simulated once more"


def test_the_figures_that_tell_that_all_is_there_are_written_last(setting: Setting, tmp_path: Path) -> None:
    (tmp_path / JOBS).mkdir()  # cannot be written
    with pytest.raises(OSError):
        run_point(POINT, setting, tmp_path)
    assert not (tmp_path / CLUSTER).exists()


@pytest.mark.parametrize(
    ("policy", "row", "message"),
    [
        ("allox", "a,2,900,20\n", "policy allox: job 2 runs on 2 GPUs, but AlloX places jobs of one"),
        ("min_cost", "", "policy min_cost: cluster.dollars_per_hour.v100 is not above 0; give its price"),
    ],
)
def test_what_a_later_policy_cannot_do_is_said_before_the_first_simulation(
    policy: str, row: str, message: str, setting: Setting, tmp_path: Path
) -> None:
    (tmp_path / "own.csv").write_text("job_type,scale_factor,gpu_type,steps_per_s\na,1,v100,1\na,2,v100,2\n")
    with (tmp_path / "trace.csv").open("a") as file:
        file.write(row)
    two = replace(setting, cluster=GpuCluster({"v100": 2}), data=read_data(str(tmp_path / "own.csv")))
    check_points([POINT], two)
    with pytest.raises(ClusterError, match=message):
        check_points([POINT, SimulationPoint(policy)], two)
