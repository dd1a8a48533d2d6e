"""`experiments.layout`: its table and files, given layouts beside the best, and refused input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from commands import refusal
from made_up_layers import as_csv, made_up_layers
from perfetto_rules import read_events, thread_of

from placements.trainers.files import read_any
from placements.trainers.megatron_layout import read_notation
from schedsearch.metrics import peak_memory
from schedsearch.schedule_file import read_schedule

COLUMNS = "schedule,num_chunks,layout,iteration_ms,bound_ms,even_ms,peak_memory_mib,status"


@pytest.fixture
def layers(tmp_path: Path) -> Path:
    path = tmp_path / "layers.csv"
    path.write_text(as_csv(made_up_layers(12)))
    return path


def test_the_table_and_the_files_of_each_framework(ran, layers: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("--num-layers 12 --pipeline-model-parallel-size 4\n")
    done = ran(
        "layout",
        *(f"layers={layers}", "num_devices=4", "num_chunks=[1,2]", "num_micro_batches=8"),
        *("memory_mib=8000", f"given=[{path}]"),
    )
    out = tmp_path / "out"
    text = (out / "layout.csv").read_text()
    assert text.splitlines()[0] == COLUMNS
    once, twice, given = csv.DictReader(text.splitlines())
    assert [once["schedule"], twice["schedule"]] == ["one_f_one_b", "interleaved_one_f_one_b"]
    assert (once["status"], given["status"]) == ("proved", "given")
    assert float(once["iteration_ms"]) == float(once["bound_ms"]) < float(once["even_ms"])
    assert once["even_ms"] == given["iteration_ms"], "the even layout is what Megatron-LM makes"
    for row in (once, twice):
        folder = out / f"{row['schedule']}_{row['num_chunks']}"
        layout = read_notation(row["layout"], 4)
        assert read_any(str(folder / "megatron.txt")).layout == layout
        assert read_any(str(folder / "torchtitan.txt")).layout == layout
        schedule = read_schedule(folder / "schedule.json")
        assert len(thread_of(read_events(out / "trace.json"), 3, folder.name)) == len(schedule.order(3))
        placement = schedule.placement
        assert placement.ms(schedule.makespan) == float(row["iteration_ms"])
        assert placement.mib(int(peak_memory(schedule).max())) == float(row["peak_memory_mib"]) <= 8000
    assert read_any(out / "one_f_one_b_1/deepspeed.json").layout == read_notation(once["layout"], 4)
    assert "interleaved_one_f_one_b_2: no deepspeed.json: DeepSpeed: has one stage on each" in done.stdout
    assert f"    {once['layout']}" in done.stdout.splitlines()
    figures = json.loads((out / "result.json").read_text())["figures"]
    assert figures["iteration_ms"] == min(float(row["iteration_ms"]) for row in (once, twice))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["layers=none.csv"], "none.csv: cannot be read (No such file or directory); give the path of a CSV"),
        (["num_chunks=[]"], "num_chunks: [] is not a whole number above 0; give one"),
        (["memory_mib=1000"], "memory_mib: no layout fits in 1000 MiB; give more, as 80GiB"),
        (["num_chunks=[9]"], "num_chunks: 36 stages are more"),
        (["num_devices=99", "num_chunks=[1,2]"], "num_devices: 99 stages are more than the 14 pieces"),
        (["given=[none.txt]"], "none.txt: cannot be read; give a text file of"),
        (["given=examples/train.sh"], "examples/train.sh: has 8 pipeline ranks, not 4; give num_devices=8"),
        (["precision=fp8"], "precision: fp8 does not apply here: model is not given; leave it out"),
        (["model=llama3_8b"], "layers, model: give one of the two: a table of layers, or a model and its"),
    ],
)
def test_what_is_refused(overrides: list[str], message: str, layers: Path, tmp_path: Path) -> None:
    usual = [f"layers={layers}", "num_devices=4", "num_micro_batches=8", "num_chunks=1"]
    (tmp_path / "out").mkdir()
    assert refusal("layout", [*usual, *overrides], tmp_path / "out").startswith(message)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "cluster: has no value; give the GPUs of model, as in cluster=h100_64"),
        (["cluster=h100_6"], "cluster: h100_6 is no multiple of the 4 GPUs of a pipeline, which are"),
        (
            ["cluster=h100_8", "measured_layout=Et"],
            "measured_layout: Et does not apply here: layers is not given",
        ),
        (["cluster=h100_8", "model=opt_350m"], "model: opt_350m is not an embedding, transformer layers and"),
        (["cluster=h100_8", "expert_parallel=2"], "expert_parallel: gpt3_1.3b has no experts; leave it out"),
    ],
)
def test_models_that_are_refused(overrides: list[str], message: str, tmp_path: Path) -> None:
    usual = ["model=gpt3_1.3b", "num_devices=4", "num_micro_batches=8"]
    (tmp_path / "out").mkdir()
    assert refusal("layout", [*usual, *overrides], tmp_path / "out").startswith(message)


def test_a_model_on_a_cluster_makes_its_own_table(command, ran, tmp_path: Path) -> None:
    """The written table finds the same layout again."""
    usual = ["num_devices=4", "num_micro_batches=8", "num_chunks=[1]"]
    done = ran("layout", "model=gpt3_1.3b", "cluster=h100_8", "tensor_parallel=2", *usual)
    assert "gpt3_1.3b: TP2 PP4, 8x1, batch 8, on 1 x 8 NVIDIA H100-SXM5-80GB" in done.stdout
    (row,) = csv.DictReader((tmp_path / "out/layout.csv").read_text().splitlines())
    (tmp_path / "again.csv").write_text((tmp_path / "out/layers.csv").read_text())
    done = command("layout", f"layers={tmp_path / 'again.csv'}", *usual)
    (again,) = csv.DictReader((tmp_path / "out/layout.csv").read_text().splitlines())
    assert row["layout"] == again["layout"] and row["status"] == "proved"
    assert float(row["iteration_ms"]) >= float(again["iteration_ms"]), "transfers take time"


def test_a_layout_of_a_framework_is_a_placement(ran, layers: Path, tmp_path: Path) -> None:
    words = "--num-layers 12 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout"
    text = "Et*3|t*3|t*3|t*3L"
    files = {"megatron": f"{words} '{text}'", "torchtitan": ""}
    lists = ["tok_embeddings", *(f"layers.{i}" for i in range(12)), "norm", "lm_head"]
    files["torchtitan"] = (
        "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule Interleaved1F1B "
        "--parallelism.module_fqns_per_model_part "
        + " ".join(",".join(lists[a:b]) for a, b in ((0, 4), (4, 7), (7, 10), (10, 15)))
    )
    schedules = []
    for kind, content in files.items():
        path = tmp_path / f"{kind}.txt"
        path.write_text(content)
        ran(
            "search",
            *("schedule=interleaved_one_f_one_b", f"placement={kind}", f"placement.path={path}"),
            *(f"placement.layers={layers}", "search.num_micro_batches=4"),
        )
        schedules.append(read_schedule(tmp_path / "out/schedule.json"))
    assert schedules[0].makespan == schedules[1].makespan
    assert schedules[0].placement == schedules[1].placement
    ran(
        "layout",
        *(f"layers={layers}", "num_devices=2", "num_chunks=[2]", "num_micro_batches=4"),
        f"given=[{tmp_path / 'megatron.txt'}]",
    )
    *_, given = csv.DictReader((tmp_path / "out/layout.csv").read_text().splitlines())
    assert float(given["iteration_ms"]) == schedules[0].placement.ms(schedules[0].makespan)


@pytest.mark.parametrize(
    ("notation", "message"),
    [
        (None, "placement.path: has no value; give one, as in placement.path=VALUE"),
        ("12 'Et*6|t*6'", "The last layer must be loss, but got LayerType.decoder; end"),
        ("13 'Et*6|t*7L'", "layout: has 13 layers and 0 of MTP, and the given layers 12 and 0; give both"),
    ],
)
def test_placements_that_are_refused(
    notation: str | None, message: str, layers: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    usual = ["placement=megatron", f"placement.layers={layers}"]
    if notation is not None:
        num_layers, layout = notation.split()
        flags = f"--num-layers {num_layers} --pipeline-model-parallel-layout {layout}"
        (tmp_path / "train.sh").write_text(f"{flags} --pipeline-model-parallel-size 2")
        usual.append(f"placement.path={tmp_path / 'train.sh'}")
    assert message in refusal("search", usual, tmp_path / "out")


@pytest.mark.always
def test_a_log_of_megatron_is_a_profile(ran, tmp_path: Path) -> None:
    """Its layers are written as CSV, which finds the same layout again; memory has to be filled in."""
    arguments = {"num_layers": 6, "pipeline_model_parallel_size": 3, "data_parallel_size": 1}
    arguments |= {"global_batch_size": 4, "micro_batch_size": 1}
    lines = [f"  {name} ........ {value}" for name, value in arguments.items()]
    for name, times in (("forward-compute", (17, 16, 24)), ("backward-compute", (34, 32, 48))):
        lines += [f"  {name}:", *(f"     rank {rank:2d}: {time:.2f}" for rank, time in enumerate(times))]
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines))
    usual = ["num_devices=2", "num_chunks=[1]", "num_micro_batches=8"]
    done = ran("layout", f"layers={log}", *usual)
    assert f"{log}: memory is not in the file: 0 MiB; fill it into layers.csv" in done.stdout
    first = (tmp_path / "out/layout.csv").read_text()
    written = tmp_path / "again.csv"
    written.write_text((tmp_path / "out/layers.csv").read_text())
    ran("layout", f"layers={written}", *usual)
    assert (tmp_path / "out/layout.csv").read_text() == first
    (tmp_path / "none").mkdir()
    message = refusal("layout", [f"layers={log}", *usual, "memory_mib=1000"], tmp_path / "none")
    assert message.startswith("memory_mib: the layers have no memory, so that nothing is over it; fill")
