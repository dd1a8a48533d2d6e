import csv
import json
from pathlib import Path

import numpy as np
import pytest
from commands import refusal

from experiments.search.profile_reading import doubtful_units
from placements import Profile
from placements.forms.texts import write_json
from schedsearch.energy import Frontier, simulate_at_clocks, simulate_switching
from schedsearch.energy.baselines import perseus_frontier
from schedsearch.schedule_file import read_schedule


@pytest.fixture
def profile_csv(tmp_path: Path) -> Path:
    """A profile of five stages in Zeus's columns, the times far from whole milliseconds."""
    rows = ["stage,instruction,frequency,time,energy"]
    for stage in range(5):
        for instruction, factor in (("forward", 1.0), ("backward", 2.7)):
            for clock in range(600, 1411, 90):
                time_s = (0.0483 + 0.0031 * stage) * factor * (0.1 + 0.9 * 1410 / clock)
                power_w = 120 + 250 * (clock / 1410) ** 3
                rows.append(f"{stage},{instruction},{clock},{time_s},{time_s * power_w}")
    path = tmp_path / "profile.csv"
    path.write_text("\n".join(rows))
    return path


def test_a_measured_profile_of_as_many_stages_as_it_has(ran, profile_csv: Path, tmp_path: Path) -> None:
    options = [
        "placement=v_shape",
        "schedule=one_f_one_b",
        "search.num_micro_batches=12",
        "energy.num_plans=20",
    ]
    done = ran("frontier", *options, f"profile.path={profile_csv}", "profile.time_scale=10", draws=True)
    out = tmp_path / "out"
    schedule = read_schedule(out / "schedule.json")
    assert schedule.placement.num_devices == 5
    assert schedule.placement.by_name["F0"].time * schedule.placement.tick_ms == pytest.approx(483, rel=1e-3)
    profile = Profile.from_csv(profile_csv, blocking_power_w=83.64, time_scale=10)
    frontier = Frontier.from_json(out / "frontier.json")
    assert frontier.blocking_power_w == 83.64
    for plan in frontier.plans:
        simulated = simulate_at_clocks(schedule, profile, plan.clock_mhz)
        assert (plan.time_ms, plan.energy_mj) == pytest.approx((simulated.time_ms, simulated.energy_mj))
    data = json.loads((out / "frontier.json").read_text())
    energies = [plan["energy_mj"] for plan in data["plans"]]
    assert energies == sorted(energies, reverse=True)
    assert data["plans"][0]["time_ms"] <= data["all_maximum"]["time_ms"]
    assert {len(clocks) for clocks in data["plans"][0]["clock_mhz"].values()} == {12}
    plan = json.loads((out / "plan.json").read_text())
    assert plan["time_ms"] <= data["all_maximum"]["time_ms"] == plan["deadline_ms"]
    for row in csv.DictReader((out / "savings.csv").read_text().splitlines()):
        until = float(row["slowdown"]) * frontier.all_maximum.time_ms
        assert float(row["frontier"]) == pytest.approx(frontier.saving(frontier.at(until), until))
        assert all(float(row[name]) <= float(row["at_most"]) + 1e-9 for name in list(row)[5:] if row[name])
    rows = list(csv.DictReader((out / "baselines.csv").read_text().splitlines()))
    assert list(dict.fromkeys(row["name"] for row in rows)) == ["envpipe", "zeus_global", "zeus_per_stage"]
    saved = json.loads((out / "baselines.json").read_text())["plans"]
    assert all(int(row["clock_changes"]) <= int(row["changes_per_iteration"]) for row in rows)
    for row, entry in zip(rows, saved, strict=True):
        simulated = simulate_at_clocks(schedule, profile, entry["clock_mhz"])
        assert (entry["time_ms"], entry["energy_mj"]) == pytest.approx(
            (simulated.time_ms, simulated.energy_mj)
        )
        assert [row["name"], *(float(row[key]) for key in ("time_ms", "energy_mj", "saving", "gap"))] == [
            entry[key] for key in ("name", "time_ms", "energy_mj", "saving", "gap")
        ]
        assert entry["gap"] > -1e-9
    assert "\nEnvPipe  " in done.stdout
    for name in ("timeline", "power", "power_all_maximum", "memory", "frontier"):
        assert (out / f"{name}.png").stat().st_size > 10_000


def test_the_frontier_of_perseus_is_planned_drawn_and_written(ran, tmp_path: Path) -> None:
    options = [
        "placement=v_shape",
        "schedule=one_f_one_b",
        "search.num_micro_batches=4",
    ]
    options += ["energy.method=perseus", "energy.unit_ms=3", "energy.slowdown=1.1"]
    options += ["energy.dwell_ms=100", "energy.baselines=[perseus,all_maximum]"]
    done = ran("frontier", *options)
    assert "Perseus's algorithm over fitted exponentials, in units of 3 ms" in done.stdout
    out = tmp_path / "out"
    schedule = read_schedule(out / "schedule.json")
    profile = Profile.from_csv(out / "profile.csv", blocking_power_w=83.64)
    expected = perseus_frontier(schedule, profile, 3.0)
    frontier = Frontier.from_json(out / "frontier.json")
    assert len(frontier.plans) == len(expected.plans) > 5
    for plan, wanted in zip(frontier.plans, expected.plans, strict=True):
        assert dict(plan.clock_mhz) == dict(wanted.clock_mhz)
        assert (plan.time_ms, plan.energy_mj, plan.lower_bound_mj) == pytest.approx(
            (wanted.time_ms, wanted.energy_mj, wanted.lower_bound_mj)
        )
    assert "\nPerseus  " in done.stdout
    names = {plan["name"] for plan in json.loads((out / "baselines.json").read_text())["plans"]}
    assert names == {"perseus", "all_maximum"}
    data = json.loads((out / "frontier.json").read_text())
    assert (data["method"], data["unit_ms"]) == ("perseus", 3.0)
    plan = json.loads((out / "plan.json").read_text())
    chosen = expected.at(plan["deadline_ms"])
    assert plan["time_ms"] == pytest.approx(chosen.time_ms)
    assert plan["clock_mhz"] == {name: list(clocks) for name, clocks in chosen.clock_mhz.items()}
    names = [
        "frequencies.csv",
        "frontier.csv",
        "baselines.json",
        "switched.json",
        "timeline.png",
        "power.png",
    ]
    for name in (*names, "frontier.png", "memory.png"):
        assert (out / name).stat().st_size > 0


def test_a_deadline_before_the_shortest_plan_of_perseus(
    command, ran, profile_csv: Path, tmp_path: Path
) -> None:
    """Asked for, it is refused; otherwise the shortest plan is taken."""
    options = [
        "placement=v_shape",
        "schedule=one_f_one_b",
        "search.num_micro_batches=6",
        "energy.baselines=[]",
    ]
    options += [f"profile.path={profile_csv}", "energy.method=perseus", "energy.unit_ms=40"]
    done = command("frontier", *options, "energy.slowdown=1")
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert "energy.slowdown: " in line
    assert "ms cannot be kept, the shortest plan of energy.method=perseus takes" in line
    assert "a shorter energy.unit_ms than 40, or energy.method=exact" in line
    done = ran("frontier", *options)
    assert "the plan is for the longer time" in done.stdout
    plan = json.loads((tmp_path / "out/plan.json").read_text())
    assert plan["deadline_ms"] == plan["time_ms"]


def test_plans_solved_exactly(ran, tmp_path: Path) -> None:
    options = ["placement=v_shape", "placement.num_devices=2", "schedule=one_f_one_b", "energy.num_plans=4"]
    options += ["search.num_micro_batches=2", "energy.slowdown=1.1", "energy.baselines=[]"]
    energies = {}
    for work in (0, 20):
        done = ran("frontier", *options, f"energy.work_limit={work}")
        data = json.loads((tmp_path / "out/frontier.json").read_text())
        assert (data["method"], "unit_ms" in data) == ("exact", False)
        assert data["work_limit"] == work
        plan = json.loads((tmp_path / "out/plan.json").read_text())
        energies[work] = plan["energy_until_deadline_mj"]
        assert plan["time_ms"] <= plan["deadline_ms"] * (1 + 1e-9)
    number = len(data["plans"]) + len(data["straggler_plans"])
    assert f"{number} of {number} plans are proved to be the best for their time" in done.stdout
    assert energies[20] <= energies[0] * (1 + 1e-9)
    assert energies[20] == pytest.approx(
        plan["lower_bound_mj"] + 2 * 83.64 * (plan["deadline_ms"] - plan["time_ms"]), rel=1e-6
    )


REALISABLE = {
    "periodic": ["energy.periodic=1"],
    "switched": ["energy.dwell_ms=150", "energy.switch_ms=5"],
    "capped": ["energy.power_cap_w=700"],
}


def test_plans_for_a_real_job(ran, tmp_path: Path) -> None:
    options = ["placement=v_shape", "search.num_micro_batches=12", "energy.num_plans=6"]
    options += [option for case in REALISABLE.values() for option in case]
    done = ran("frontier", *options, "energy.slowdown=1.1")
    out = tmp_path / "out"
    files = {
        name: json.loads((out / f"{name}.json").read_text()) for name in (*REALISABLE, "periodic_switched")
    }
    schedule = read_schedule(out / "schedule.json")
    profile = Profile.from_csv(out / "profile.csv", blocking_power_w=83.64)
    for name in ("periodic", "capped"):
        plan = files[name]["plan"]
        simulated = simulate_at_clocks(schedule, profile, plan["clock_mhz"])
        assert (files[name].get("running_ms") or plan["time_ms"]) == pytest.approx(simulated.time_ms)
    assert files["periodic"]["plan"]["time_ms"] <= files["periodic"]["deadline_ms"] * (1 + 1e-9)
    assert files["periodic"]["steady"].keys() == {f"{letter}{i}" for letter in "FB" for i in range(4)}
    assert files["switched"]["plan"]["time_ms"] <= files["switched"]["deadline_ms"] * (1 + 1e-9)
    for name in ("switched", "periodic_switched"):
        data = files[name]
        simulated = simulate_switching(schedule, profile, data["plan"]["clock_mhz"], 5.0)
        assert data["is_of_schedule"] if name == "periodic_switched" else True
        assert data["plan"]["time_ms"] == pytest.approx(simulated.time_ms)
        assert data["plan"]["energy_mj"] == pytest.approx(simulated.energy_mj)
        assert 0 <= data["gap"] < 0.2
        assert all(
            0 <= changes - within <= 1
            for changes, within in zip(data["changes_per_iteration"], data["clock_changes"], strict=True)
        )
    assert files["periodic_switched"]["loss_to_periodic"] > -1e-9
    assert files["capped"]["min_time_ms"] <= files["capped"]["plan"]["time_ms"]
    plan = files["capped"]["plan"]
    assert plan["energy_mj"] <= 700 * plan["time_ms"] * (1 + 1e-9)
    for title in (
        "Clocks that repeat: ",
        "Few changes of clock: ",
        "Clocks that repeat and change seldom: ",
        "Under the power cap: ",
    ):
        assert title in done.stdout
    plans = json.loads((out / "frontier.json").read_text())["plans"]
    assert all(len(plan["clock_changes"]) == 4 for plan in plans)
    assert len(json.loads((out / "plan.json").read_text())["clock_changes"]) == 4


def test_limits_of_the_table(ran, tmp_path: Path) -> None:
    """Without a file the limits are the GPU's; with one a change takes the time to the slowest clock."""
    options = ["placement=v_shape", "placement.num_devices=2", "schedule=one_f_one_b", "energy.baselines=[]"]
    options += ["search.num_micro_batches=3", "placement.tick_ms=60", "energy.num_plans=3"]
    options += ["energy.slowdown=1.2"]
    options += ["energy.dwell_ms=auto", "energy.switch_ms=auto"]
    done = ran("frontier", *options)
    said = "a clock stays for at least 20 ms, and a change takes 10 ms: Perseus, footnote 2: around 10 ms"
    assert f"{said}; dwell assumed\n" in done.stdout
    switched = json.loads((tmp_path / "out/switched.json").read_text())
    assert (switched["dwell_ms"], switched["switch_ms"]) == (20, 10)
    table = tmp_path / "latency.json"
    changes = [[600, 1200, [4]], [1200, 600, [7, 9, 30]]]
    write_json(table, {"gpu": "mine", "measured": "by hand", "changes": changes})
    done = ran("frontier", *options, f"profile.clock_latency={table}")
    assert f"a change takes 9 ms: {table}, mine: by hand; dwell assumed\n" in done.stdout
    switched = json.loads((tmp_path / "out/switched.json").read_text())
    assert (switched["dwell_ms"], switched["switch_ms"]) == (18, 9)
    schedule = read_schedule(tmp_path / "out/schedule.json")
    profile = Profile.from_csv(tmp_path / "out/profile.csv", blocking_power_w=83.64)
    simulated = simulate_switching(schedule, profile, switched["plan"]["clock_mhz"], 9.0)
    assert switched["plan"]["time_ms"] == pytest.approx(simulated.time_ms)


@pytest.mark.always
def test_only_what_was_asked_for(ran, tmp_path: Path) -> None:
    options = ["placement=v_shape", "search.num_micro_batches=2", "energy.num_plans=2", "energy.switch_ms=1"]
    ran("frontier", *options, "energy.baselines=[]")
    assert not list((tmp_path / "out").glob("baselines.*"))
    assert {name for name in REALISABLE if (tmp_path / f"out/{name}.json").exists()} == {"switched"}


def test_the_best_of_several_schedules_is_the_one_that_is_saved(command, ran, tmp_path: Path) -> None:
    options = ["placement=m_shape", "placement.num_devices=3", "search.num_micro_batches=6"]
    options += ["search.work_limit=2.5", "energy.num_plans=5", "energy.baselines=[]"]
    done = ran("frontier", *options, "energy.orders=4", "energy.slowdown=1.05")
    out = tmp_path / "out"
    data = json.loads((out / "frontier.json").read_text())
    order = data["order"]
    chosen = order["judged"][order["chosen"]]
    assert order["judged"][0]["origin"] == "search"
    assert chosen["energy_mj"] == min(row["energy_mj"] for row in order["judged"] if row["energy_mj"])
    assert order["gain"] == pytest.approx(1 - chosen["energy_mj"] / order["judged"][0]["energy_mj"])
    schedule = read_schedule(out / "schedule.json")
    assert schedule.makespan == chosen["makespan"]
    plan = json.loads((out / "plan.json").read_text())
    assert plan["deadline_ms"] == order["deadline_ms"]
    assert plan["energy_until_deadline_mj"] <= chosen["energy_mj"] * (1 + 1e-9)
    profile = Profile.from_csv(out / "profile.csv", blocking_power_w=83.64)
    simulated = simulate_at_clocks(schedule, profile, plan["clock_mhz"])
    assert (plan["time_ms"], plan["energy_mj"]) == pytest.approx((simulated.time_ms, simulated.energy_mj))
    assert "compared, chosen: " in done.stdout
    assert command("check", f"schedule={out / 'schedule.json'}").returncode in (0, 1)


def test_orders_are_compared_by_default(ran, tmp_path: Path) -> None:
    options = ["placement=v_shape", "placement.num_devices=2", "search.num_micro_batches=3"]
    done = ran("frontier", *options, "energy.num_plans=3", "energy.baselines=[]", is_quick=False)
    order = json.loads((tmp_path / "out/frontier.json").read_text())["order"]
    least = min(row["energy_mj"] for row in order["judged"] if row["energy_mj"])
    assert order["lower_bound_mj"] <= least * (1 + 1e-9)
    assert "no order needs over " in done.stdout
    ran("frontier", *options, "energy.num_plans=3", "energy.baselines=[]", "schedule=gpipe")
    assert "order" not in json.loads((tmp_path / "out/frontier.json").read_text())


def test_the_frontier_as_tables(ran, profile_csv: Path, tmp_path: Path) -> None:
    options = ["placement=v_shape", "schedule=one_f_one_b", f"profile.path={profile_csv}"]
    options += ["search.num_micro_batches=6", "energy.num_plans=5"]
    ran("frontier", *options)
    out = tmp_path / "out"
    rows = list(csv.DictReader((out / "frontier.csv").read_text().splitlines()))
    points = list(csv.DictReader((out / "relaxed.csv").read_text().splitlines()))
    time, least = ([float(point[name]) for point in points] for name in ("time_ms", "energy_mj"))
    assert time == sorted(time)
    for row in rows:
        bound = np.interp(float(row["time_ms"]), time, least)
        assert float(row["lower_bound_mj"]) == pytest.approx(bound, rel=1e-9)


WRONG = [
    (["schedule=chimera"], "schedule: Chimera needs an X-shape"),
    (
        ["energy.slowdown=1.1", "energy.deadline_ms=900"],
        "energy.deadline_ms: is given beside energy.slowdown",
    ),
    (["energy.baselines=[envpip]"], "energy.baselines: 'envpip' is not known; did you mean envpipe?"),
    (["energy.method=perseus2"], "energy.method: 'perseus2' is not known; did you mean perseus?"),
    (
        ["energy.periodic=1", "schedule=gpipe"],
        "energy.periodic: schedule=gpipe repeats nothing after a few micro-batches; use schedule=searched",
    ),
    (
        ["energy.periodic=1", "search.method=time_optimal"],
        "energy.periodic: search.method=time_optimal finds nothing that repeats; use search.method=modulo",
    ),
    (["energy.dwell_ms=-1"], "energy.dwell_ms: -1 is not a time; give 0 ms or more, or auto"),
    (["profile.clock_latency=none.json"], "none.json: cannot be read (No such file or directory); give"),
    (
        ["energy.slowdown=10%"],
        "energy.slowdown: '10%' is not a number of 1 or more; write 10% more as 1.1, a share",
    ),
    (
        ["placement.num_devices=4"],
        "placement.num_devices: 4 is not the 5 on which v_shape has the profile's blocks; set",
    ),
    (["placement=m_shape"], "profile: lacks E, EB of m_shape"),
    (["profile.blocking_power_w={}"], "profile.blocking_power_w: {} is not W by MHz; give some as in {705"),
    (
        ["profile.blocking_power_w={fast: 3}"],
        "profile.blocking_power_w: 'fast' is not a clock, a whole number of 1 or more",
    ),
    (["placement.num_gpus=[1,2]"], "placement.num_gpus: has 2 entries for 5 devices; give one for each"),
    (
        ["placement.num_gpus=8", "energy.power_cap_w=3000"],
        "energy.power_cap_w: 3000 is not above 3345.6 W, all waiting; give more",
    ),
]


def test_gpus_of_devices_and_blocking_power_by_clock(ran, profile_csv: Path, tmp_path: Path) -> None:
    """Both options reach every figure: the files agree with a simulation that is told of both."""
    options = [
        "placement=v_shape",
        "schedule=one_f_one_b",
        "search.num_micro_batches=6",
        "energy.num_plans=8",
        "energy.slowdown=1.2",
        "placement.num_gpus=[1,2,3,4,5]",
        "energy.tokens_per_iteration=6000",
        "profile.blocking_power_w={705: 60.0, 1410: 84}",
        f"profile.path={profile_csv}",
    ]
    ran("frontier", *options)
    out = tmp_path / "out"
    schedule = read_schedule(out / "schedule.json")
    assert schedule.placement.num_gpus == (1, 2, 3, 4, 5)
    power = ((705, 60.0), (1410, 84.0))
    profile = Profile.from_csv(profile_csv, blocking_power_w=power)
    frontier = Frontier.from_json(out / "frontier.json")
    assert (frontier.num_gpus, frontier.blocking_power_by_clock) == (15, power)
    for plan in frontier.plans:
        simulated = simulate_at_clocks(schedule, profile, plan.clock_mhz)
        assert (plan.time_ms, plan.energy_mj) == pytest.approx((simulated.time_ms, simulated.energy_mj))
        assert plan.waiting_w == pytest.approx(simulated.waiting_w)
    plan = json.loads((out / "plan.json").read_text())
    planned = frontier.at(plan["deadline_ms"])
    assert plan["energy_until_deadline_mj"] == frontier.energy_next_to(planned, plan["deadline_ms"])
    assert plan["tokens_per_s_per_gpu"] == pytest.approx(1e3 * 6000 / 15 / plan["time_ms"])


def test_where_costs_come_from_is_said_everywhere(ran, profile_csv: Path, tmp_path: Path) -> None:
    """A saving of a shape's ticks once looked like one of a model's, and a default like a measurement."""
    options = [
        "placement=v_shape",
        "schedule=one_f_one_b",
        "search.num_micro_batches=3",
        "energy.num_plans=4",
    ]
    small = ("placement.num_devices=3", "energy.slowdown=1.2", "energy.periodic=1", "energy.dwell_ms=1")
    done = ran("frontier", *options, *small)
    out = tmp_path / "out"
    files = sorted(set(out.glob("*.json")) - {out / "result.json"})
    assert {"schedule", "frontier", "plan", "baselines", "periodic", "switched"} <= {
        path.stem for path in files
    }
    for path in files:
        source = json.loads(path.read_text())["cost_source"]
        assert source["times"] == "placeholders, the ticks of v_shape" and source["placeholder"], path
        assert source["energies"].startswith("power model of NVIDIA A100"), path
        assert source["blocking_power"] == "default of NVIDIA A100-SXM4-80GB, 83.64 W", path
    assert f"times: {source['times']}\nenergies: {source['energies']}\nblocking power: " in done.stdout
    read_schedule(out / "schedule.json"), Frontier.from_json(out / "frontier.json")
    plan = json.loads((out / "plan.json").read_text())
    until = f"waiting until {plan['deadline_ms']:.6g} ms (20.0% later)"
    against = f"{until}; costs are placeholders"
    assert plan["saving_against"] == f"all clocks at maximum, then {against}"
    assert done.stdout.count(against) == 1, "what savings are against is said once"
    assert len([line for line in done.stdout.splitlines() if "without waiting)" in line]) == 4
    (out / "placement.yaml").rename(tmp_path / "again.yaml")
    ran("search", "placement=file", f"placement.path={tmp_path / 'again.yaml'}", *options[1:3])
    again = json.loads((out / "schedule.json").read_text())["cost_source"]
    assert again == source, "the ticks are nobody's measurement when they come from a file"
    done = ran("frontier", *options, f"profile.path={profile_csv}", "profile.energy_scale=2")
    source = json.loads((out / "plan.json").read_text())["cost_source"]
    assert source["times"] == f"profile {profile_csv}, energies times 2" and not source["placeholder"]
    assert "default of" in source["blocking_power"] and "placeholder" not in done.stdout


def test_a_unit_that_is_likely_wrong_is_named(ran, profile_csv: Path) -> None:
    def doubts(**scales: float) -> list[str]:
        return [*doubtful_units(Profile.from_csv(profile_csv, blocking_power_w=80.0, **scales))]

    long, power = doubts(time_scale=1000)
    assert "if they are milliseconds, set profile.time_scale=0.001" in long and "times are milli" in power
    (power,) = doubts(energy_scale=1000)
    assert "if energies are millijoules, set profile.energy_scale=0.001" in power
    (power,) = doubts(energy_scale=0.001)
    assert "if energies are kilojoules, set profile.energy_scale=1000" in power
    assert doubts() == []
    line = ["search", "placement=v_shape", "schedule=gpipe", "search.num_micro_batches=2"]
    wrong = ("profile.time_scale=1000", "profile.blocking_power_w=84000")
    done = ran(*line, f"profile.path={profile_csv}", *wrong)
    assert done.stdout.count("warning: ") == 3
    assert "a GPU that waits uses 84000 W, where GPUs use 1 to 2000 W" in done.stdout


@pytest.mark.parametrize(("overrides", "message"), WRONG, ids=[" ".join(overrides) for overrides, _ in WRONG])
def test_wrong_input(overrides: list[str], message: str, profile_csv: Path, tmp_path: Path) -> None:
    options = ["placement=v_shape", f"profile.path={profile_csv}"]
    kept = [option for option in options if option.split("=")[0] not in {o.split("=")[0] for o in overrides}]
    assert message in refusal("frontier", [*kept, *overrides], tmp_path / "out")


def test_a_deadline_that_cannot_be_kept_is_refused_before_the_search(tmp_path: Path) -> None:
    options = ["placement=v_shape", "placement.num_devices=2", "search.num_micro_batches=2"]
    message = refusal("frontier", [*options, "energy.deadline_ms=3"], tmp_path / "out")
    assert message.startswith("energy.deadline_ms: 3 is not possible: no schedule ends before 120 ms at the")


def configured(profile_csv: Path) -> None:
    """Rewrite a profile: each row, and another one in which the block is faster and uses more."""
    rows = profile_csv.read_text().splitlines()[1:]
    lines = ["block,frequency,time,energy,config"]
    for row in rows:
        stage, instruction, clock, time_s, energy_j = row.split(",")
        block = f"{instruction[0].upper()}{stage}"
        lines.append(f"{block},{clock},{time_s},{energy_j},4 SMs")
        lines.append(f"{block},{clock},{0.9 * float(time_s)},{1.3 * float(energy_j)},16 SMs")
    profile_csv.write_text("\n".join(lines))


def test_configurations(ran, profile_csv: Path, tmp_path: Path) -> None:
    options = [
        "placement=v_shape",
        "schedule=one_f_one_b",
        "search.num_micro_batches=4",
        "energy.num_plans=10",
        "energy.work_limit=0.1",
    ]
    configured(profile_csv)
    ran("frontier", *options, f"profile.path={profile_csv}")
    out = tmp_path / "out"
    plan = json.loads((out / "plan.json").read_text())
    rows = list(csv.DictReader((out / "frequencies.csv").read_text().splitlines()))
    assert {row["config"] for row in rows} == {"4 SMs", "16 SMs"}
    assert set(plan["config"]) <= set(plan["clock_mhz"])
    for option in ("energy.periodic=1", "energy.switch_ms=10"):
        line = refusal("frontier", [*options, f"profile.path={profile_csv}", option], tmp_path / "no")
        assert "chooses clocks alone, but F0 at 600 MHz has several" in line
    line = refusal("run", [*options, f"profile.path={profile_csv}"], tmp_path / "no")
    assert line.startswith("schedsearch run: chooses clocks alone")
