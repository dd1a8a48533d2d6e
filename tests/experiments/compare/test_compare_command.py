"""`experiments.compare`: the table, its files, and refused input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml
from perfetto_rules import read_events, thread_of

from schedsearch.schedule_file import read_schedule

COLUMNS = (
    "schedule,placement,proved,makespan_ms,makespan_bound_ms,bubble_rate,period_ms,device_span_ms,"
    "peak_memory_mib,energy_j,search_seconds,note"
)


@pytest.fixture
def stages(tmp_path: Path) -> Path:
    stage = {"forward_ms": 10, "backward_ms": 20, "activation_mib": 100, "weight_mib": 50}
    path = tmp_path / "stages.yaml"
    path.write_text(yaml.safe_dump({"stages": [stage] * 2, "memory_mib": 300, "transfer_ms": 0.5}))
    return path


def test_a_table_a_figure_and_the_schedules(command, stages: Path, tmp_path: Path) -> None:
    names = ["searched", "one_f_one_b", "interleaved_one_f_one_b", "zb_v", "dual_pipe", "gpipe"]
    quick = ["search.num_micro_batches=4", "search.work_limit=2.5", "export=perfetto"]
    done = command("compare", f"stages={stages}", f"schedules=[{','.join(names)}]", *quick, draws=True)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    text = (out / "compare.csv").read_text()
    assert text.splitlines()[0] == COLUMNS
    rows = {row["schedule"]: row for row in csv.DictReader(text.splitlines())}
    assert list(rows) == names
    assert rows["gpipe"]["proved"] == "does not fit"
    assert rows["gpipe"]["note"] == "needs 450 MiB on device 0, which has 300 MiB"
    assert rows["gpipe"]["makespan_ms"] == ""
    # Device 1 begins after 10.5 ms, has 4 x 30 ms of work, waits 1 ms for F2, and 20.5 ms follow.
    assert (rows["one_f_one_b"]["makespan_ms"], rows["one_f_one_b"]["makespan_bound_ms"]) == (
        "152.0",
        "151.0",
    )
    data = json.loads((out / "compare.json").read_text())
    assert [row["schedule"] for row in data["rows"]] == names
    assert data["num_micro_batches"] == 4
    fitting = {name for name in names if rows[name]["makespan_ms"]}
    assert {path.stem for path in (out / "schedules").iterdir()} == fitting
    for name in fitting:
        schedule = read_schedule(out / f"schedules/{name}.json")
        assert schedule.makespan * schedule.placement.tick_ms == float(rows[name]["makespan_ms"])
        assert len(thread_of(read_events(out / "trace.json"), 0, name)) == len(schedule.order(0))
    assert (out / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "compare.pdf").read_bytes().startswith(b"%PDF")
    lines = done.stdout.splitlines()
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    for path in (out / "compare.json", *(out / "schedules").iterdir()):
        source = json.loads(path.read_text())["cost_source"]
        assert source["times"] == f"stages of {stages}" and f"times: stages of {stages}" in lines, path
    assert lines[0].split() == ["schedule", "makespan", "bound", "bubble", "period", "peak", "memory"]
    assert any(line.split()[:3] == ["one_f_one_b", "152", "ms"] for line in lines)
    figures = {
        name: (float(rows[name]["makespan_ms"]), float(rows[name]["peak_memory_mib"])) for name in fitting
    }
    best, by_hand = min(fitting, key=figures.get), min(fitting - {"searched"}, key=figures.get)
    page = (out / "report.html").read_text()
    needs = [f"{figures[name][0]:g} ms and {figures[name][1]:g} MiB on" for name in (best, by_hand)]
    assert f"{best} takes {needs[0]} {rows[best]['placement']} ({rows[best]['proved']}" in page
    won = f"{by_hand}, the best by hand, which takes {needs[1]} {rows[by_hand]['placement']} ("
    assert "None of these schedules takes less." in page if best == by_hand else won in page
    assert f"Times: stages of {stages}. Energies: none." in page


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages=none.yaml", "none.yaml: cannot be read"),
        ("schedules=[zb_w]", "schedules: 'zb_w' is not a schedule; did you mean zb_v?"),
        (
            "search.begin_with=a.json",
            "search.begin_with: is not an option of schedsearch compare, but of search, ",
        ),
    ],
)
def test_wrong_input(override: str, message: str, refused, stages: Path, tmp_path: Path) -> None:
    assert message in refused("compare", f"stages={stages}", override)
    assert not (tmp_path / "out/compare.csv").exists()


LAYERS = "layer,kind,forward_ms,backward_ms,activation_mib,weight_mib\n" + "".join(
    f"{name},{kind},{forward},{2 * forward},10,5\n"
    for name, kind, forward in [
        ("e", "embedding", 1),
        *((f"l{i}", "layer", 4) for i in range(6)),
        ("loss", "loss", 8),
    ]
)
"""Six layers and a loss that takes two of them."""


def test_a_layout_of_ones_own_stands_beside_the_best(command, tmp_path: Path) -> None:
    (tmp_path / "layers.csv").write_text(LAYERS)
    layout = "--pipeline-model-parallel-layout 'Ettt|tttL'"
    (tmp_path / "mine.sh").write_text(f"train --pipeline-model-parallel-size 2 --num-layers 6 {layout}\n")
    quick = ["search.num_micro_batches=4", "search.work_limit=2", "search.memory=130"]
    files = [f"stages={tmp_path}/layers.csv", f"given=[{tmp_path}/mine.sh]"]
    done = command("compare", *files, "schedules=[searched,one_f_one_b]", *quick)
    assert done.returncode == 0, done.stderr
    rows = {row["schedule"]: row for row in csv.DictReader((tmp_path / "out/compare.csv").open())}
    assert list(rows) == ["mine", "best layout, one_f_one_b", "searched", "one_f_one_b"]
    mine, best = rows["mine"], rows["best layout, one_f_one_b"]
    # a stage of 39 ms and one of 60 ms: the way of one micro-batch, and three times the longer stage
    assert float(mine["makespan_ms"]) == 39 + 60 + 3 * 60
    assert mine["note"] == "Et*3|t*3L"
    assert best["note"] == f"Et*4|ttL, none is under {float(best['makespan_ms']):g} ms"
    assert float(best["makespan_ms"]) < float(mine["makespan_ms"])
    assert float(rows["searched"]["makespan_ms"]) <= float(best["makespan_ms"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ((), "num_devices: has no value, and nothing is given; give the number of devices"),
        (("given=[no.sh]",), "no.sh: cannot be read; give a text file of Megatron-LM's or torchtitan's"),
    ],
)
def test_layers_need_devices(override: tuple[str, ...], message: str, refused, tmp_path: Path) -> None:
    (tmp_path / "layers.csv").write_text(LAYERS)
    assert message in refused("compare", f"stages={tmp_path}/layers.csv", *override)


@pytest.mark.always
def test_energies_come_from_the_power_of_a_device(command, stages: Path, tmp_path: Path) -> None:
    """1F1B of 4 micro-batches, 152 ms: both devices compute for 120 ms and wait for 32 ms."""
    data = yaml.safe_load(stages.read_text()) | {"power_w": {"running": 300, "blocking": 0.5}}
    stages.write_text(yaml.safe_dump(data))
    quick = ["schedules=[one_f_one_b]", "search.num_micro_batches=4"]
    done = command("compare", f"stages={stages}", *quick)
    assert done.returncode == 0, done.stderr
    (row,) = csv.DictReader((tmp_path / "out/compare.csv").read_text().splitlines())
    assert float(row["energy_j"]) == pytest.approx(2 * (0.120 * 300 + 0.032 * 0.5))
    source = json.loads((tmp_path / "out/compare.json").read_text())["cost_source"]
    assert source["energies"] == f"power_w of {stages}, 300 W while computing"
    assert "power_w.blocking is 0.5 W, where GPUs use 1 to 2000 W; give W" in done.stdout


def test_stages_are_required(refused) -> None:
    assert "stages: has no value" in refused("compare")


LENGTHS = "micro_batch,tokens\n0,1000\n1,4000\n2,500\n3,2000\n"
RULES = "block,power,time_ms,memory_mib\n" + "".join(
    f"F{i},1,10,25\nF{i},2,1,\nB{i},1,20,-25\nB{i},2,2,\n" for i in (0, 1)
)


def test_a_batch_of_lengths_in_several_orders(command, stages: Path, tmp_path: Path) -> None:
    (tmp_path / "lengths.csv").write_text(LENGTHS)
    (tmp_path / "rules.csv").write_text(RULES)
    files = [f"search.micro_batches={tmp_path}/lengths.csv", f"search.length_rules={tmp_path}/rules.csv"]
    done = command(
        "compare", f"stages={stages}", *files, "schedules=[searched,one_f_one_b]", "search.work_limit=1"
    )
    assert done.returncode == 0, done.stderr
    rows = {row["schedule"]: row for row in csv.DictReader((tmp_path / "out/compare.csv").open())}
    assert list(rows) == [
        "searched",
        *(f"one_f_one_b, {how}" for how in ("as given", "short first", "long first")),
    ]
    schedule = read_schedule(tmp_path / "out/schedules/one_f_one_b, short first.json")
    ms = [schedule.placement.ms(schedule.block("F1", n).time) for n in range(4)]
    assert ms == [11, 56, 5.25, 24]
    assert all(float(rows["searched"]["makespan_ms"]) <= float(row["makespan_ms"]) for row in rows.values())
    page = (tmp_path / "out/report.html").read_text()
    assert "the best by hand, " in page or "None of these schedules takes less" in page


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["search.length_rules=a.csv"],
            "search.length_rules: 'a.csv' is not used; give search.micro_batches",
        ),
        (["search.replicas=2"], "search.replicas: 2 is not used; give search.micro_batches, or leave it out"),
        (["search.micro_batches={lengths}"], "has lengths, but block times per length are missing; give"),
        (
            ["search.micro_batches={lengths}", "search.method=tessel"],
            "search.method: 'tessel' is not for micro",
        ),
    ],
)
def test_wrong_batches(overrides: list[str], message: str, refused, stages: Path, tmp_path: Path) -> None:
    (tmp_path / "lengths.csv").write_text(LENGTHS)
    given = [override.format(lengths=tmp_path / "lengths.csv") for override in overrides]
    assert message in refused("compare", f"stages={stages}", *given)
