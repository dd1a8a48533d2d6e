"""Layouts of known models, and NVIDIA's recipe beside the planner's choice: records and tables.

``python docs/layout_pages.py`` computes ``docs/layouts.json`` again in three minutes of a core, from the
model and the degrees of each row there. It writes the tables of ``docs/layouts.md``, and a paragraph about
the recipe.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.benchmarks.timing import cpu_s
from placements.cluster import read_cluster
from placements.forms.texts import markdown_table, write_json, write_text
from placements.models.zoo import read_model
from placements.planners.hybrid.plan_options import PlanOptions
from placements.planners.hybrid.shape_costs import FrameworkCosts
from placements.planners.hybrid.uniform import Degrees, Layout, chunk_sizes
from placements.trainers.layout import layout_of_sizes
from placements.trainers.megatron_layout import MegatronPipeline, read_notation
from schedsearch.layouts.layouts import DOES_NOT_FIT, layout
from schedsearch.planning.layout_plans import layers_to_divide
from schedsearch.planning.planner import TRAINED, in_bf16, plan
from schedsearch.planning.uniform_run import UniformRun

DOCS = Path(__file__).parent
DATA, PAGE = DOCS / "layouts.json", DOCS / "layouts.md"

BEGIN, END = "<!-- layouts -->\n", "<!-- end of layouts -->\n"

_RECIPE_LAYOUT, _RECIPE_MS = "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 19_692
"""NVIDIA's division, and the time by its published tokens/s."""

_RESERVE_GIB, _WORK, _MICRO_BATCHES = PlanOptions().reserve_gib, 1.0, 4
"""Free memory of a GPU, units of work for each layout, and micro-batches for each stage."""


def found_layout(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the best layout for its model, degrees, stages and chunks."""
    degrees = Degrees(*(row[name] for name in ("tensor", "pipeline", "data")), expert=row["expert"])
    model, cluster = in_bf16(read_model(row["model"])), read_cluster(f"h100_{degrees.num_gpus}")
    p, number = degrees.pipeline, _MICRO_BATCHES * degrees.pipeline
    usual = Layout(degrees, 1, number, recompute=row["recompute"])
    run = UniformRun(model, cluster, usual, TRAINED, overlap=True)
    layers, *limits = layers_to_divide(run, cluster.whole.memory_gib - _RESERVE_GIB)
    even = MegatronPipeline(layout_of_sizes(p, layers.parts, chunk_sizes(model, p * row["chunks"])))
    layouts = layout(layers, p, number, row["chunks"], *limits, {"even": even}, _WORK)
    best, given = layouts.rows[0], layouts.given["even"]
    figures = {"iteration_ms": best.iteration_ms, "even_ms": given.iteration_ms, "bound_ms": best.bound_ms}
    rounded = {name: value and round(value, 1) for name, value in figures.items()}
    return {**row, "layout": best.layout, **rounded, "even_fits": given.status != DOES_NOT_FIT}


def found_recipe() -> dict[str, Any]:
    """Return the fastest plan for Llama 3 70B on 64 H100, and the recipe's times in two divisions."""
    model, cluster, began_s = read_model("llama3_70b", precision="fp8"), read_cluster("h100_64"), cpu_s()
    options = replace(TRAINED, precision=model.precision, overlap_tensor_parallel=True)
    plans = plan(model, cluster, 256, costs=FrameworkCosts(model, options), uniform=True)
    best, layouts = max(plans.proposed, key=lambda ranked: ranked.samples_per_s or 0.0), plans.layouts[256]
    usual = UniformRun(model, cluster, Layout(Degrees(4, 8, 2, chunks=5), 1, 128), options, overlap=True)
    divided = replace(usual.layout, chunk_layers=read_notation(_RECIPE_LAYOUT, 8).sizes)
    times = {"best_ms": best.iteration_ms, "recipe_ms": replace(usual, layout=divided).iteration_ms}
    bounds = {"order_bound_ms": best.bound_ms, "bound_ms": layouts.bound_ms, "cpu_s": cpu_s() - began_s}
    figures = times | {"even_ms": usual.iteration_ms} | bounds
    rounded = {name: round(value or 0.0) for name, value in figures.items()}
    return {"best": best.name, "num_layouts": layouts.num_layouts, **rounded}


def recipe_in_words(recipe: Mapping[str, Any]) -> str:
    """Return the paragraph about the recipe."""
    less, less_than_even = (100 * (1 - recipe["best_ms"] / recipe[name]) for name in ("recipe_ms", "even_ms"))
    text = (
        "NVIDIA's recipe for Llama 3 70B in FP8 on 64 H100 (TP 4, PP 8, VP 5) takes {recipe_ms:,} ms by "
        "these costs, and {even_ms:,} ms with layers divided evenly. The fastest of {num_layouts:,} layouts, "
        f"{{best}}, takes {{best_ms:,}} ms: {less:.1f} and {less_than_even:.1f} % less. No layout that fits "
        "takes less than {bound_ms:,} ms. By NVIDIA's published tokens/s the recipe takes "
    )
    return f"{text.format_map(recipe)}{_RECIPE_MS:,} ms; we ran neither."


def with_table(page: str, data: Mapping[str, Any]) -> str:
    """Return the page with a table of layouts for each number of stages, and a summary of their savings."""
    rows: Sequence[Mapping[str, Any]] = data["layouts"]
    saved = [100 * (1 - row["iteration_ms"] / row["even_ms"]) for row in rows]
    num_proved = sum(row["bound_ms"] >= row["iteration_ms"] for row in rows)
    parts = [
        f"The {len(rows)} layouts take {fmean(saved):.1f} % less time than even divisions on average, at "
        f"most {max(saved):.1f} % less. For {num_proved} of them, no division is faster.",
        recipe_in_words(data["recipe"]),
    ]
    heads = ("model", "TP/EP/DP", "VP", "ms", "less (%)", "layout")
    for stages in sorted({row["pipeline"] for row in rows}):
        lines: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        for row, percent in zip(rows, saved, strict=True):
            if row["pipeline"] == stages:
                model = row["model"] + (" (recomputed)" if row["recompute"] == "full" else "")
                degrees = "/".join(str(row[name]) for name in ("tensor", "expert", "data"))
                proved = "*" if row["bound_ms"] >= row["iteration_ms"] else ""
                less = f"{percent:.1f}" if row["even_fits"] else "even does not fit"
                time_ms = f"{row['iteration_ms']:,.0f}{proved}"
                cells = (f"{row['chunks']}", time_ms, less, f"`{row['layout']}`")
                lines.setdefault((model, degrees), []).append(cells)
        table = [(*head, *map("<br>".join, zip(*cells, strict=True))) for head, cells in lines.items()]
        parts += [f"## {stages} stages", markdown_table(heads, table)]
    before, rest = page.split(BEGIN)
    return "\n\n".join([before + BEGIN.strip(), *parts, END + rest.split(END)[1]])


def main() -> None:
    """Compute all layouts, record them and write the page."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    data = {"recipe": found_recipe(), "layouts": [found_layout(row) for row in data["layouts"]]}
    write_json(DATA, data)
    write_text(PAGE, with_table(PAGE.read_text("utf-8"), data))


if __name__ == "__main__":
    main()
