import ast
import csv
import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from commands import one_line_error, refusal
from perfetto_rules import problems, read_events, thread_of
from small_runs import launched

from placements.placement_file import read_placement
from runtime.check import check_file
from runtime.checkpoints.loading import read_parameters
from runtime.codegen.script import programs_of, read_scripts
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.program.program_file import read_programs
from schedsearch.schedule_file import read_schedule

FILES = ["placement.yaml", "schedule.json", "frontier.json", "plan.json", "measurement.json", "report.html"]
PICTURES = ["timeline.png", "power.png", "power_all_maximum.png", "memory.png", "frontier.png"]


def check_run(out: Path, reorders_sums: bool) -> None:
    """Assert that a run left all of its files, and that they agree."""

    for name in FILES + PICTURES:
        assert (out / name).stat().st_size > 0, name
    schedule = read_schedule(out / "schedule.json")
    data = json.loads((out / "measurement.json").read_text())
    number = schedule.num_micro_batches
    assert data["backend"] == "gloo"
    assert data["bitwise_equal"] is True
    assert max(data["max_loss_error"], data["max_gradient_error"], data["max_parameter_error"]) <= 1e-12
    errors = [data[f"max_{what}_error"] for what in ("loss", "gradient", "parameter")]
    assert reorders_sums or errors == [0, 0, 0]
    assert [len(losses) for losses in data["losses"]] == [number] * data["iterations"]
    compared = {"first": 1, "all": data["iterations"]}[data["verify"]]
    for losses, reference in zip(data["losses"][:compared], data["reference_losses"], strict=True):
        assert losses == pytest.approx(reference, rel=1e-12)
    first, last = (sum(data["losses"][i]) for i in (0, -1))
    assert last < first, "training lowers the loss"
    plan = json.loads((out / "plan.json").read_text())
    for device in range(schedule.placement.num_devices):
        asked = data["clock_requests"][str(device)]
        planned = [plan["clock_mhz"][name][n] for name, n in schedule.per_micro_batch.order(device)]
        assert asked == planned * data["iterations"]
        script = (out / f"scripts/device_{device}.py").read_text()
        functions = [n for n in ast.walk(ast.parse(script)) if isinstance(n, ast.FunctionDef)]
        iteration, train = functions
        assert (iteration.name, train.name) == ("iteration", "train")
        assert not any(
            isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Match)) for node in ast.walk(iteration)
        )
    assert "finish even if" in check_file(out / "scripts")
    programs = read_programs(out / "scripts/programs.json")
    assert programs == programs_of(read_scripts(out / "scripts"))
    assert len(programs.specs) == schedule.placement.num_devices
    page = (out / "report.html").read_text()
    assert page.count('id="panel-timeline"') == page.count("data:image/png") == 1
    assert not re.search(r'(src|href)="https?:', page)


def check_traces(out: Path) -> None:
    """The measured run beside the plan."""
    schedule = read_schedule(out / "schedule.json").per_micro_batch
    events = read_events(out / "trace.json")
    assert problems(events) == []
    rows = list(csv.DictReader((out / "trace.csv").read_text().splitlines()))
    assert len(rows) == schedule.placement.num_devices
    for device in range(schedule.placement.num_devices):
        planned, measured = (thread_of(events, device, row) for row in ("planned", "measured"))
        order = [f"{block}.{n}" for block, n in schedule.order(device)]
        assert [event["name"] for event in planned] == order
        assert [event["name"] for event in measured] == order * 2
    assert 'href="./trace.json"' in (out / "report.html").read_text()
    assert "Without transfer time" in (out / "report.html").read_text()


SMALL = ["runtime.iterations=2", "search.work_limit=2.5", "energy.num_plans=10"]
FORKED = [*SMALL, "runtime.launcher=fork", "runtime.verify=all", "energy.baselines=[envpipe]"]


def test_the_main_job(ran, tmp_path: Path) -> None:
    """All by default, but on forked devices; `test_front_door` starts torchrun, from a fresh process."""
    done = ran("run", *SMALL, "runtime.launcher=fork", draws=True)
    out = tmp_path / "out"
    check_run(out, reorders_sums=True)
    placement = read_placement(out / "placement.yaml")
    assert placement.name == "gpt_m_shape"
    assert len(placement.by_name["E"].devices) == placement.num_devices == 4
    data = json.loads((out / "schedule.json").read_text())
    assert (data["search_status"], data["steady_bubble_rate"]) == ("OPTIMAL", pytest.approx(0, abs=1e-3))
    assert all(peak <= capacity for peak, capacity in zip(data["peak_memory"], placement.memory, strict=True))
    assert "for n in range(" in (out / "scripts/device_0.py").read_text()
    assert done.stdout.endswith(f"report.html in {out}\n")
    assert re.search("^1F1B +- +- +- +-$", done.stdout, re.M), "the embedding does not fit on one GPU"
    words = " ".join(done.stdout.split())
    assert "1F1B: device 0 holds 98797 MiB of memory from 0 on" in words
    assert "less than one_f_one_b_plus, best by hand (" in words


def test_it_says_so_where_a_longer_schedule_is_run(ran, tmp_path: Path) -> None:
    """Eight micro-batches of the example's stages: in 15 % more time the longer ZB-V needs less energy."""
    options = ["placement=stages", "placement.path=examples/stages.yaml", "search.num_micro_batches=8"]
    options += ["search.work_limit=2.5", "energy.slowdown=1.15", "energy.orders=4"]
    options += ["energy.orders_work_limit=3", "energy.num_plans=2", "energy.baselines=[]"]
    options += ["runtime.iterations=1", "runtime.verify=none"]
    options += ["runtime.hidden_size=16", "runtime.sequence_length=8"]
    done = ran("run", *options, "runtime.launcher=in_process")
    order = json.loads((tmp_path / "out/frontier.json").read_text())["order"]
    chosen, first = order["judged"][order["chosen"]], order["judged"][0]
    assert chosen["makespan"] > first["makespan"] and chosen["energy_mj"] < first["energy_mj"]
    table = done.stdout[done.stdout.index("iteration  bubble") :].splitlines()
    titles = ("searched ", f"run ({chosen['origin']})")
    searched, run = (next(row for row in table if row.startswith(title)) for title in titles)
    times = [float(re.search(r"([\d.]+) ms", row)[1]) for row in (searched, run)]
    placement = read_placement(tmp_path / "out/placement.yaml")
    assert times == pytest.approx([placement.ms(row["makespan"]) for row in (first, chosen)], rel=1e-3)
    assert read_schedule(tmp_path / "out/schedule.json").makespan == chosen["makespan"]
    assert "it needs less energy until the deadline." in " ".join(done.stdout.split())


def test_it_ends_beside_what_people_use(ran, tmp_path: Path) -> None:
    """Unequal stages: the table of three lines, the same in the report, and one sentence about the gain.

    The wave's 27 ms are proved; Chimera takes 26 ms, as its devices hold the weights of two stages.
    """
    halves = "input_gradient_ms: 2, weight_gradient_ms: 2, activation_mib: 512, weight_mib: 512"
    stages = "".join(f"- {{forward_ms: {ms}, {halves}}}\n" for ms in (2, 3))
    (tmp_path / "two.yaml").write_text(f"memory_mib: 4096\nstages:\n{stages}")
    options = ["placement=stages", f"placement.path={tmp_path / 'two.yaml'}", "search.num_micro_batches=4"]
    done = ran("run", *options, *SMALL, "runtime.launcher=in_process")
    placement = read_placement(tmp_path / "out/placement.yaml")
    assert placement.name == "wave_shape" and "W3" in placement.by_name
    table = done.stdout[done.stdout.index("iteration  bubble") :].splitlines()
    first, interleaved, best, searched = table[1:5]
    assert interleaved.startswith("interleaved 1F1B ")
    assert "interleaved 1F1B: each stage cut into 2 equal parts" in table
    assert first.startswith("1F1B ") and "best by hand" in best and searched.startswith("searched ")
    times = [float(re.search(r"([\d.]+) ms", row)[1]) for row in (first, best, searched)]
    assert times == [34, 26, 27]
    in_words = " ".join(done.stdout.split())
    assert "3.8% more than chimera, best by hand (" in in_words and "and 20.6% less than 1F1B (" in in_words
    joules = [float(re.search(r"([\d,]+) J", row)[1].replace(",", "")) for row in (first, best, searched)]
    assert joules == [23, 18, 19]
    assert all(len(line) <= 80 for line in table[:-1]), "the last one names a folder"
    page = (tmp_path / "out/report.html").read_text()
    assert f"The searched schedule takes {times[2]:g} ms (" in page and "Beside usual schedules" in page
    assert f"Times: stages of {tmp_path / 'two.yaml'}." in page


@pytest.mark.always
def test_another_shape_runs(ran, tmp_path: Path) -> None:
    small = ["runtime.num_layers=4", "runtime.hidden_size=16", "runtime.sequence_length=16"]
    ran("run", "placement=k_shape", "search.num_micro_batches=5", *small, *FORKED)
    out = tmp_path / "out"
    check_run(out, reorders_sums=True)
    late = lower(read_schedule(out / "schedule.json"))
    early = read_programs(out / "scripts/programs.json").instructions
    assert early == prefetch_receives(late, 1).instructions != late.instructions, "by default"


def test_updates_without_a_flush(ran, tmp_path: Path) -> None:
    small = ["runtime.num_layers=4", "runtime.hidden_size=16", "runtime.sequence_length=16"]
    schedule = ["placement=v_shape", "schedule=one_f_one_b", "search.num_micro_batches=12"]
    how = ["runtime.weight_versions=double_buffering", "runtime.micro_batches_per_update=4"]
    done = ran("run", *schedule, *how, *small, *FORKED)
    check_run(tmp_path / "out", reorders_sums=False)
    assert "weights     double_buffering, at most 2 of F0, 2 of F1, 2 of F2, 2 of F3\n" in done.stdout
    model = json.loads((tmp_path / "out/scripts/job.json").read_text())["model"]
    assert model["weight_versions"] == "double_buffering"


def test_a_schedule_without_the_version_that_is_asked_for_is_refused(command) -> None:
    how = [
        "energy.num_plans=2",
        "energy.baselines=[]",
        "runtime.weight_versions=double_buffering",
        "runtime.micro_batches_per_update=2",
    ]
    schedule = ["placement=v_shape", "schedule=gpipe", "search.num_micro_batches=8"]
    done = command("run", *schedule, *how)
    assert done.returncode == 2
    (message,) = done.stderr.splitlines()[-1:]
    assert "runtime.weight_versions: double_buffering lets F0 of micro-batch 4 read version 1" in message


REAL = """
name: real
num_devices: 2
tick_ms: 1.0
memory: [9, 9]
static_memory: [2, 1.5]
blocks:
- {name: F0, kind: F, devices: [0], time: 1.37, memory: 2, transient: 1, after: []}
- {name: F1, kind: F, devices: [1], time: 1.111, memory: 2, after: [F0]}
- {name: I1, kind: I, devices: [1], time: 1.2, memory: 0, transient: 1, after: [F1]}
- {name: I0, kind: I, devices: [0], time: 1.5, memory: 0, after: [I1, F0]}
- {name: W1, kind: W, devices: [1], time: 0.9, memory: -2, after: [I1, F1]}
- {name: W0, kind: W, devices: [0], time: 0.95, memory: -2, after: [I0, F0]}
- {name: R, kind: O, devices: [0, 1], time: 0.5, after: [W0, W1]}
- {name: O0, kind: O, devices: [0], time: 0.7, transient: 2, after: [R]}
- {name: O1, kind: O, devices: [1], time: 0.6, after: [R]}
transfer:
- {from: F0, to: F1, time: 0.1}
"""


def test_what_real_placements_have(ran, tmp_path: Path) -> None:
    """Fractions of ticks, static and transient memory, and optimizer blocks, from the file to the run."""
    (tmp_path / "real.yaml").write_text(REAL)
    options = ["placement=file", f"placement.path={tmp_path / 'real.yaml'}", "search.num_micro_batches=5"]
    more = ["runtime.hidden_size=16", "runtime.simulated_gpus=true", "runtime.trace=true"]
    ran("run", *options, *more, *FORKED)
    check_run(tmp_path / "out", reorders_sums=False)
    simulated = json.loads((tmp_path / "out/simulated.json").read_text())
    assert simulated["time_ms"] == pytest.approx(simulated["planned_time_ms"], rel=1e-9)
    assert simulated["energy_mj"] == pytest.approx(simulated["planned_energy_mj"], rel=1e-9)
    assert "simulated" in simulated["clock_backend"]
    check_traces(tmp_path / "out")
    schedule = json.loads((tmp_path / "out/schedule.json").read_text())
    assert (schedule["period"], schedule["search_status"]) == (3820, "OPTIMAL")
    assert schedule["peak_memory"][0] in (7, 9), "2 static, 1 transient, and two or three micro-batches"
    assert [name for name, _, _ in schedule["blocks"][-3:]] == ["R", "O0", "O1"]
    plan = json.loads((tmp_path / "out/plan.json").read_text())
    assert {name: len(starts) for name, starts in plan["start_ms"].items()} == {
        **dict.fromkeys(["F0", "F1", "I1", "I0", "W1", "W0"], 5),
        **dict.fromkeys(["R", "O0", "O1"], 1),
    }


def test_scripts_are_of_the_plan_that_changes_clocks_seldom(ran, tmp_path: Path) -> None:
    """With the limits of the table, on simulated GPUs whose changes take as long."""
    options = [
        *("placement=v_shape", "placement.num_devices=2", "placement.tick_ms=40", "schedule=one_f_one_b"),
        *("search.num_micro_batches=4", "energy.slowdown=1.2", "energy.num_plans=10", "energy.baselines=[]"),
        *("energy.dwell_ms=auto", "energy.switch_ms=auto", "runtime.simulated_gpus=true"),
        *("runtime.hidden_size=16", "runtime.launcher=in_process", "runtime.iterations=1"),
    ]
    ran("run", *options)
    out = tmp_path / "out"
    plan = json.loads((out / "switched.json").read_text())["plan"]["clock_mhz"]
    assert plan != json.loads((out / "plan.json").read_text())["clock_mhz"]
    schedule = read_schedule(out / "schedule.json")
    requests = json.loads((out / "measurement.json").read_text())["clock_requests"]
    for device in range(2):
        assert requests[str(device)] == [plan[block][n] for block, n in schedule.order(device)]
    assert json.loads((out / "simulated.json").read_text())["switch_ms"] == 10


def test_another_number_of_micro_batches_recomputed_and_resumed(command, ran, tmp_path: Path) -> None:
    """Everything of the runtime at once, in process: periodic clocks, early receives, checkpoints, AdamW."""
    options = [
        *("placement=v_shape", "placement.num_devices=2", "schedule=one_f_one_b"),
        *("search.num_micro_batches=6", "energy.periodic=1", "energy.slowdown=1.1"),
        *("energy.num_plans=10", "energy.baselines=[]"),
        *("runtime.hidden_size=16", "runtime.sequence_length=8", "runtime.launcher=in_process"),
        *("runtime.optimizer=adamw", "runtime.learning_rate=0.01", "runtime.recompute=[F0]"),
        *("runtime.num_micro_batches=9", "runtime.receive_ahead=1", "runtime.blocking=true"),
        *("runtime.checkpoint_every=1", "runtime.iterations=2", "runtime.trace=true", "runtime.verify=all"),
    ]
    ran("run", *options)
    data = json.loads((tmp_path / "out/measurement.json").read_text())
    assert (data["backend"], data["blocking"], data["num_micro_batches"]) == ("rendezvous", True, 9)
    events = read_events(tmp_path / "out/trace.json")
    assert problems(events) == []
    assert [len(thread_of(events, 0, row)) for row in ("planned", "measured")] == [18, 36]
    costs = json.loads((tmp_path / "out/trace.json").read_text())["cost_source"]
    assert costs == json.loads((tmp_path / "out/schedule.json").read_text())["cost_source"]
    assert data["bitwise_equal"] is True
    assert data["peak_posted_bytes"] == [2 * 8 * 16 * 8 * 2] * 2
    clocks = json.loads((tmp_path / "out/periodic.json").read_text())
    asked = data["clock_requests"]["0"]
    assert asked[:2] == clocks["warmup"]["F0"][0][:2]
    assert asked[-1] == clocks["cooldown"]["B0"][0][0]
    header = (tmp_path / "out/scripts/device_0.py").read_text().split('"""')[1]
    assert "6 micro-batches (or any number from 2 on)" in header
    assert "Made with schedsearch 0.2.0, torch 2." in header
    (tmp_path / "out/checkpoints").rename(tmp_path / "checkpoints")
    ran("run", *options, f"runtime.resume={tmp_path / 'checkpoints'}", "runtime.iterations=3")
    data = json.loads((tmp_path / "out/measurement.json").read_text())
    assert (data["first_iteration"], data["iterations"], data["bitwise_equal"]) == (2, 1, True)

    resume = [f"runtime.resume={tmp_path / 'checkpoints'}", "runtime.hidden_size=32"]
    done = command("run", *options[:3], *resume)
    assert "was made with another model (hidden_size 16 instead of 32)" in one_line_error(done)


DIES_ONCE = """
import os
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import mse_loss as loss


def blocks():
    torch.manual_seed(0)
    return {"F0": nn.Sequential(nn.Linear(3, 5), nn.Dropout()), "F1": nn.Linear(5, 2)}


def data(iteration, micro_batch):
    alive = Path(__file__).with_name("alive")
    if (iteration, micro_batch) == (3, 1) and alive.exists():
        alive.unlink(missing_ok=True)
        os.kill(os.getpid(), 9)
    generator = torch.Generator().manual_seed(100 * iteration + micro_batch)
    return torch.randn(4, 3, generator=generator), torch.randn(4, 2, generator=generator)
"""


def check_resumed_trace(out: Path) -> None:
    """The iterations that it did itself, without the plan, which is not known any more."""
    events = read_events(out / "trace.json")
    assert problems(events) == []
    measured = [thread_of(events, device, "measured") for device in (0, 1)]
    assert {event["args"]["iteration"] for row in measured for event in row} == {2, 3, 4, 5}
    rows = list(csv.DictReader((out / "trace.csv").read_text().splitlines()))
    assert [(row["planned_ms"], row["planned_busy"]) for row in rows] == [("", "")] * 2
    assert all(float(row["measured_ms"]) >= float(row["free_transfers_ms"]) > 0 for row in rows)
    assert "Without transfer time" in (out / "report.html").read_text()


def test_a_run_that_died_is_resumed_by_the_command_that_it_prints(command, ran, tmp_path: Path) -> None:
    """One of its processes gets SIGKILL in iteration 3; then it ends with the bits of one left alone."""
    (tmp_path / "model.py").write_text(DIES_ONCE)
    (tmp_path / "alive").touch()
    options = [
        *("placement=v_shape", "placement.num_devices=2", "search.num_micro_batches=4", "energy.num_plans=5"),
        *(
            "search.work_limit=2.5",
            "energy.baselines=[]",
            "runtime.model=module",
            f"runtime.path={tmp_path / 'model.py'}",
            "runtime.launcher=fork",
        ),
        *("runtime.optimizer=adamw", "runtime.learning_rate=0.01"),
        *("runtime.iterations=6", "runtime.checkpoint_every=2", "runtime.keep_checkpoints=1"),
        *("runtime.trace=true", "runtime.checkpoint_async=false", "runtime.verify=all"),
    ]
    done = command("run", *options)
    assert done.returncode == 1
    out = tmp_path / "out"
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["iteration_2"]
    assert not (out / "measurement.json").exists()
    line = done.stderr.splitlines()[-1]
    assert line == f"resume it: schedsearch run runtime.resume={out}"
    assert line.removeprefix("resume it: ") in done.stdout, "for a run that cannot say so any more"
    before = {path: path.read_bytes() for path in (out / "scripts").iterdir()}

    _, name, *overrides = shlex.split(line.removeprefix("resume it: "))
    done = ran(name, *overrides, f"hydra.run.dir={tmp_path / 'log'}")
    assert {path: path.read_bytes() for path in (out / "scripts").iterdir()} == before
    data = json.loads((out / "measurement.json").read_text())
    assert (data["first_iteration"], data["iterations"], data["bitwise_equal"]) == (2, 4, True)
    assert "iteration 5: " in done.stderr
    assert "run: 100% 6/6" in done.stderr, "iterations before the checkpoint are done too"
    check_resumed_trace(out)
    assert "Bitwise equal" in (out / "report.html").read_text()
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["iteration_6"]
    again = {"checkpoint_every": 6, "checkpoints": tmp_path / "right", "launcher": "in_process"}
    launched(out / "scripts", 2, 6, verify="none", **again)  # type: ignore[arg-type]
    ours, theirs = (read_parameters(folder) for folder in (out / "checkpoints", tmp_path / "right"))
    assert ours.keys() == theirs.keys() and ours
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


WRONG = [
    (
        ["runtime.weight_versions=stale"],
        "runtime.weight_versions: 'stale' is not known; the options are flush, weight_",
    ),
    (
        ["runtime.weight_versions=weight_stashing", "runtime.micro_batches_per_update=3"],
        "runtime.micro_batches_per_update: 3 is no divisor of 16 micro-batches",
    ),
    (
        ["placement=wave_shape", "runtime.weight_versions=weight_stashing"],
        "F0 and F7 share embedding.tokens; use flush or the model 'synthetic'",
    ),
    (["runtime.trace=true", "search.export=perfetto"], "as search.export=perfetto does; leave one out"),
    (
        ["runtime.clocks=false", "runtime.simulated_gpus=true"],
        "runtime.simulated_gpus: needs scripts with clocks; use runtime.clocks=true",
    ),
    (["runtime.model=gpt", "placement=k_shape"], "use the model 'synthetic'"),
    (["runtime.model=gpt", "runtime.path=a.py"], "runtime.path: gpt reads no file; use the model 'module'"),
    (["runtime.recompute=[F9]"], "runtime.recompute: gpt_m_shape has no forward block 'F9'"),
    (["runtime.resume=nowhere"], "runtime.resume: nowhere is not a folder"),
]


def test_a_run_whose_loss_is_no_number_says_so(command, tmp_path: Path) -> None:
    options = [
        *("placement=v_shape", "placement.num_devices=2", "schedule=one_f_one_b", "energy.num_plans=5"),
        *("search.num_micro_batches=3", "runtime.hidden_size=16", "runtime.sequence_length=8"),
        *("runtime.launcher=in_process", "runtime.learning_rate=1e18", "runtime.iterations=3"),
        "runtime.checkpoint_every=1",
    ]
    done = command("run", *options)
    assert done.returncode == 1
    assert [path.name for path in sorted((tmp_path / "out/checkpoints").iterdir())] == [
        "iteration_1",
        "iteration_2",
    ]
    lines = [line for line in done.stderr.splitlines() if line.startswith("run: the run failed")]
    assert lines == [
        "run: the run failed: device 1 failed: iteration 2: the loss of F1, micro-batch 0, is nan; "
        "lower the learning rate, or look at the data"
    ]
    assert not (tmp_path / "out/measurement.json").exists()


def test_a_job_that_is_only_written_runs_the_searched_order(ran, tmp_path: Path) -> None:
    """Also of times that are known: of other orders, with less energy, is nothing said."""
    options = ["placement=stages", "placement.path=examples/stages.yaml", "search.num_micro_batches=8"]
    written = ("runtime.model=given", "runtime.launcher=none")
    ran("run", *options, "search.work_limit=1", *written, is_quick=False)
    figures = json.loads((tmp_path / "out/result.json").read_text())["figures"]
    assert "makespan_ms" in figures and "energy_j" not in figures
    searched = read_schedule(tmp_path / "out/schedule.json")
    programs = read_programs(tmp_path / "out/scripts/programs.json")
    assert programs.instructions == prefetch_receives(lower(searched), 1).instructions


def test_scripts_have_no_clocks_where_none_are_wanted(ran, tmp_path: Path) -> None:
    options = [
        *("placement=v_shape", "placement.num_devices=2", "schedule=one_f_one_b", "energy.num_plans=5"),
        *("search.num_micro_batches=3", "runtime.launcher=none", "runtime.clocks=false"),
    ]
    ran("run", *options)
    assert not any(script.calls.asks_for_clocks for script in read_scripts(tmp_path / "out/scripts"))


@pytest.mark.parametrize(("overrides", "message"), WRONG, ids=[" ".join(overrides) for overrides, _ in WRONG])
def test_wrong_input_stops_before_the_search(overrides: list[str], message: str, tmp_path: Path) -> None:
    assert message in refusal("run", overrides, tmp_path / "out")
