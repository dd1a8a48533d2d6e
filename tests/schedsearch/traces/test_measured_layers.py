"""Layers from measurements: the times that went in come out, and wrong files are one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from one_line_errors import raises_line

from placements.placement_file import placement_to_yaml
from placements.profiles.operating_point import OperatingPoint
from placements.profiles.profile import Profile
from placements.shapes import v_shape
from placements.trainers.layers import PART_OF_KIND, ModelLayer, read_layers
from placements.trainers.layout import LayoutError
from placements.trainers.megatron_layout import read_notation
from schedsearch.traces.measured_layers import read_measured
from schedsearch.traces.reading import read_folder
from schedsearch.traces.table import BLOCK_KINDS

EMBEDDING, LAYER, LOSS = (0.5, 0.75), (2.0, 4.0), (3.0, 5.0)
COST = {"E": EMBEDDING, "t": LAYER, "m": LAYER, "L": LOSS}
MICRO_BATCHES = 8


def argument(name: str, value: object) -> str:
    """A line as Megatron-LM prints its arguments."""
    return f"  {name} {'.' * (48 - len(name))} {value}\n"


def log(text: str, ranks: int, copies: int = 2, prefix: str = "", **others: object) -> str:
    """Return a log of Megatron-LM with timers for the parts' costs; its first iteration is slow."""
    layout = read_notation(text, ranks)
    arguments = {
        "num_layers": layout.num_layers,
        "mtp_num_layers": layout.num_mtp or None,
        "pipeline_model_parallel_size": ranks,
        "pipeline_model_parallel_layout": text,
        "account_for_loss_in_pipeline_split": False,
        "global_batch_size": MICRO_BATCHES * copies * 2,
        "micro_batch_size": 2,
        "data_parallel_size": copies,
    } | others
    lines = "".join(argument(name, value) for name, value in arguments.items())
    for slow in (3.0, 1.0, 1.0):
        timers = {}
        for i, name in enumerate(("forward-compute", "backward-compute")):
            of_rank = [
                slow * MICRO_BATCHES * sum(COST[part][i] for part in "".join(layout.stages[rank::ranks]))
                for rank in range(ranks)
            ]
            timers[name] = [time for time in of_rank for _ in range(copies)]
        lines += "times across ranks (ms):\n"
        for name, times in timers.items():
            lines += f"  {name}:\n" + "".join(
                f"     rank {rank:2d}: {time:.2f}\n" for rank, time in enumerate(times)
            )
    return "".join(prefix + line + "\n" for line in lines.splitlines())


def costs(rows: tuple[ModelLayer, ...]) -> list[tuple[str, float, float]]:
    return [(PART_OF_KIND[row.kind], row.forward_ms, row.backward_ms) for row in rows]


def wanted(text: str) -> list[tuple[str, float, float]]:
    parts = "".join(read_notation(text, 1).stages)
    return [(part, *COST[part]) for part in sorted(parts, key="EtmL".index)]


@pytest.mark.parametrize(
    ("text", "ranks"), [("Et|ttt|tt|L", 4), ("Et|t|t|t|t|tL", 3), ("Et|t|t|t|t|t|m|L", 4)]
)
def test_megatrons_timers_of_all_ranks(text: str, ranks: int, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(log(text, ranks, prefix="[default7]:"))
    measured = read_measured(path)
    assert costs(measured.layers) == wanted(text)
    noise = path.read_text().replace("rank  1", "\x1b[1mrank  1").replace("rank  2", "a: Warning\nrank  2")
    path.write_text(noise[:-25])
    assert read_measured(path) == measured
    assert measured.assumptions[0] == "memory is not in the file: 0 MiB; fill it into layers.csv"
    again = tmp_path / "layers.csv"
    again.write_text(measured.to_csv())
    assert read_layers(again) == measured
    with raises_line(LayoutError, match="^measured_layout: .* says itself which parts it has; leave it out"):
        read_measured(again, "EtL")
    assert read_measured(again).assumptions == ()


def test_of_several_runs_the_last_counts(tmp_path: Path) -> None:
    """With its own arguments, though another run follows that has no times."""
    text, other, path = log("Ett|tt|ttL", 3), log("Et|ttt|L", 3), tmp_path / "train.log"
    for runs in (text, other + text, other + text + log("Et|t|L", 3).split("times across")[0]):
        path.write_text(runs)
        assert costs(read_measured(path).layers) == wanted("Ett|tt|ttL")


def test_two_ranks_give_the_ends_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(log("Ett|ttL", 2))
    measured = read_measured(path)
    assert sum(row.forward_ms for row in measured.layers) == pytest.approx(11.5, rel=1e-3)
    assert "next to nothing" in measured.assumptions[1]


OTHERS = {"batch-generator": 8.0, "all-grads-sync": 3.0, "optimizer": 5.0, "params-all-gather": 1.0}
"""Timers of an iteration that are no blocks; the first is within forwards, the last within the optimizer."""


@pytest.mark.parametrize(("text", "ranks"), [("Ett|tt|ttL", 3), ("Et|t|t|t|t|tL", 3)])
def test_a_log_is_an_iteration_of_mean_blocks(text: str, ranks: int, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    timers = "".join(f"  {name}:\n     rank  0: {ms}\n" for name, ms in OTHERS.items())
    written = log(text, ranks, copies=4)
    for number, slow in ((1, 9.0), (2, 1.0), (3, 1.0)):
        line = f" iteration {number:8d}/      10 | elapsed time per iteration (ms): {100 * slow:.1f} | x |\n"
        written = written.replace("times across", f"{line}{timers}times  across", 1)
    path.write_text(written)
    (table,) = read_folder(path)
    assert (table.num_replicas, table.num_stages, table.iteration_ms) == (4, ranks, {3: 100.0})
    assert "1F1B, with computed begin times" in table.lines[0]
    blocks = [span for span in table.spans if span.kind in BLOCK_KINDS]
    assert len(blocks) == 2 * MICRO_BATCHES * len(text.split("|"))
    for rank in range(ranks):
        parts = "".join(read_notation(text, ranks).stages[rank::ranks])
        taken_ms = sum(s.end_ms - s.start_ms for s in table.spans if s.rank == rank and s.stage is not None)
        assert taken_ms == pytest.approx(MICRO_BATCHES * sum(sum(COST[part]) for part in parts))
    last_ms = max(span.end_ms for span in blocks)
    data_ms = sum(span.end_ms - span.start_ms for span in table.spans if span.kind == "data")
    assert data_ms == pytest.approx(OTHERS["batch-generator"] / 4), "of the first of a rank's four processes"
    after = [(s.kind, s.end_ms - s.start_ms) for s in table.spans if s.stage is None]
    assert after == [("collective", 0.75), ("optimizer", 1.0), ("collective", 0.25)]
    assert max(span.end_ms for span in table.spans) == pytest.approx(last_ms + 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            log("Ett|tt|ttL", 3).split("  forward-compute")[0],
            "forward-compute: is not in the log for each rank; train with",
        ),
        ("backward-compute", "num_layers: is not in the log; keep its begin"),
        (log("Ett|tt|ttL", 3, global_batch_size=33), "global_batch_size: 33 is no multiple of"),
        (log("Ett|tt|ttL", 3, micro_batch_size="x"), "micro_batch_size: 'x' is not a whole number above 0"),
        (log("Ett|tt|ttL", 3).replace(": 36.00", ": 36,00"), "forward-compute: '36,00' is not a time in ms;"),
        (log("Ett|tt|ttL", 3, num_layers=9), "--pipeline-model-parallel-layout: Megatron-LM: "),
        (
            log("Ett|tt|ttL", 3).replace("rank  5", "rank  6"),
            "forward-compute: has 6 ranks, and the pipeline 3",
        ),
        (
            log("Ett|tt|ttL", 3, rampup_batch_size="['8', '8', '99']"),
            "rampup_batch_size: is ['8', '8', '99'],",
        ),
        (log("EttL", 1), "the embedding and the loss are in one time with the layers"),
    ],
)
def test_logs_that_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(text)
    with raises_line(LayoutError, f"{path}: {message}"):
        read_measured(path)


def profile(folder: Path, text: str) -> Path:
    """A folder as `experiments.profile` writes it, for stages of these parts."""
    stages = read_notation(text, 1).stages
    points = {}
    for i, stage in enumerate(stages):
        for kind, which in (("F", 0), ("B", 1)):
            ms = sum(COST[part][which] for part in stage)
            points[f"{kind}{i}"] = (OperatingPoint(1, ms, 0.0),)
    placement = Profile("measured", points, 0.0).times_for(v_shape(len(stages)))
    (folder / "placement.yaml").write_text(placement_to_yaml(placement))
    return folder


def test_a_profile_of_layers_or_stages(tmp_path: Path) -> None:
    assert costs(read_measured(profile(tmp_path, "E|t|t|t|L")).layers) == wanted("E|t|t|t|L")
    folder = profile(tmp_path, "Ett|tt|ttL")
    assert costs(read_measured(folder, "Ett|tt|ttL").layers) == wanted("Ett|tt|ttL")
    with pytest.raises(LayoutError, match="measured_layout has 2 stages, and the file 3; give as many$"):
        read_measured(folder, "Ett|ttL")


def test_a_trace_of_blocks(tmp_path: Path) -> None:
    events = []
    for i, part in enumerate("EttL"):
        for kind, which in (("F", 0), ("B", 1)):
            label = {"name": f"PP:{i}{kind}0", "ph": "X", "ts": 0, "dur": 1000 * COST[part][which]}
            events.append(label | {"pid": 1, "tid": 1})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert costs(read_measured(path).layers) == wanted("EttL")
    path.write_text(json.dumps({"traceEvents": events[:-1]}))
    with pytest.raises(LayoutError, match="has no backward B3; measure all blocks of a model"):
        read_measured(path)
    path.write_text("{")
    with pytest.raises(LayoutError, match="trace.json: is not JSON"):
        read_measured(path)


def test_placements_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="has 2 stages, and not which parts .* give measured_layout"):
        read_measured(profile(tmp_path, "Et|tL"))
    placement = v_shape(2)
    named = [replace(block, name=f"x{block.name}", after=()) for block in placement.blocks]
    other = tmp_path / "other.yaml"
    other.write_text(placement_to_yaml(replace(placement, blocks=tuple(named))))
    with pytest.raises(LayoutError, match="other.yaml: block 'xF0' is of no stage; give blocks F0, B0"):
        read_measured(other)
    other.write_text("[")
    with pytest.raises(LayoutError, match="^.*other.yaml: "):
        read_measured(other)
