"""A small folder of plans that nobody ran: two types of GPU, two zones, a model of two blocks."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from experiments.predict.board import BoardRun
from experiments.report.result import Table
from placements.forms.texts import write_json, write_text

COLUMNS = Table(BoardRun, ()).heads
"""Columns of predictions."""

LAYERS = ("0", "1", "2", "3")

FAST, SLOW = ("fast", 4, "east"), ("slow", 4, "west")

ENDLESS = [[0, 0, 1e9], 1e18]
"""A fit of a link that takes next to no time."""

GB_PER_S = [[0, 0, 1], 1e9]
"""A link of 1 GB/s."""


def times(scale: float) -> dict[str, list[float]]:
    """Forward, backward and update of each layer in s; the optimizer takes no time."""
    ms = {"0": (1, 2), "1": (10, 20), "2": (10, 20), "3": (4, 6)}
    return {
        layer: [scale * forward / 1000, scale * backward / 1000, 0.0]
        for layer, (forward, backward) in ms.items()
    }


def memory(tensor_parallel: int) -> dict[str, dict[str, int]]:
    """A million weights and activations per layer, and an output of a million bytes."""
    layer = {
        "params_floats": 1_000_000 // tensor_parallel,
        "act_mem_floats": 1_000_000 // tensor_parallel,
        "act_output_floats": 250_000,
    }
    return dict.fromkeys(LAYERS, layer)


def links(fit: list[Any] = ENDLESS) -> dict[str, Any]:
    """One fit for all links between nodes."""
    both = {"1": fit, "2": fit}
    ends = {"east": {"fast": both}, "west": {"slow": both}}
    return {"east": {"fast": {"1": ends, "2": ends}}, "west": {"slow": {"1": ends, "2": ends}}}


def plan(
    stages: list[list[int]],
    replicas: list[list[tuple[tuple[str, int, str], int]]],
    mbs: int = 1,
    gbs: int = 4,
) -> dict[str, Any]:
    """A plan: the layers of each stage, and a node and tensor parallelism for each of its replicas."""
    pipeline = {
        "num_stages": len(stages),
        "layers_per_stage": stages,
        "tmp_per_stage": [[[[list(node)], size] for node, size in stage] for stage in replicas],
        "dp": [len(stage) for stage in replicas],
    }
    return {"pipeline_list": [pipeline], "mbs": mbs, "gbs": gbs}


PLANS: dict[str, dict[str, Any]] = {
    "one_stage": plan([[0, 1, 2, 3]], [[(FAST, 1)]]),
    "two_types": plan([[0, 1], [2, 3]], [[(FAST, 2), (SLOW, 2)], [(FAST, 1), (SLOW, 1)]], gbs=8),
}


def write_runs(
    folder: Path,
    plans: dict[str, dict[str, Any]] = PLANS,
    rows: str | None = None,
    between: dict[str, Any] | None = None,
) -> Path:
    """Write the folder; each row of its table says a second and a GiB where none are given."""
    for gpu, scale in (("fast", 1), ("slow", 3)):
        profile = {"1": {"1": times(scale), "2": times(scale / 2)}, "4": {"1": times(4 * scale)}}
        write_json(folder / f"profiles/toy/{gpu}.json", profile)
    write_json(folder / "memory/toy.json", {"1": memory(1), "2": memory(2)})
    write_json(folder / "bandwidth/inter_node.json", links() if between is None else between)
    write_json(folder / "bandwidth/intra_node.json", {"fast": {"2": ENDLESS}, "slow": {"2": ENDLESS}})
    for name, data in plans.items():
        write_json(folder / f"plans/{name}.json", data)
    table = rows or "".join(f"{name},toy,1,{2**30},\n" for name in plans)
    write_text(folder / "plans.csv", f"plan,model,real_s,max_mem_B,note\n{table}")
    return folder


def table(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    assert tuple(reader.fieldnames or ()) == columns
    return rows
