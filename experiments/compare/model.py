"""The model of a comparison: stages of a file, or layers, which layouts of one's own divide too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from experiments.compare.options import CompareOptions
from experiments.config.options import OptionError, require, require_path
from experiments.search.options import SearchOptions
from placements.stages.layout_stages import place_layout, stage_from_layers
from placements.stages.stage_chain import PlacedStages, StageChain
from placements.stages.stage_file import read_stages, with_memory
from placements.trainers.layers import ModelLayers
from schedsearch.comparison.unequal import UnequalModel, read_chains
from schedsearch.layouts.layouts import LayoutRow, layout
from schedsearch.schedule import Schedule
from schedsearch.traces.measured_layers import read_measured

OwnSchedules = Mapping[str, tuple[PlacedStages, Schedule]]
"""Schedules by name, each with the model on its devices."""


def read_model(options: CompareOptions) -> tuple[StageChain, OwnSchedules]:
    """Return the model, and the schedules of layouts that were given, with the best layouts beside them.

    Raises:
        OptionError: Layers have no number of devices, or a file of stages has one, or a layout.
        LayoutError: A file is wrong, or a layout is of another model.
    """
    path = Path(require_path("stages", options.stages))
    wants_layers = next((name for name in ("given", "num_devices") if getattr(options, name)), "")
    if wants_layers and path.suffix.lower() in (".yaml", ".yml"):
        raise OptionError(
            f"{wants_layers}: goes with layers, and stages={path} is a file of stages; leave it "
            "out, or give a CSV of layers as stages"
        )
    if not (wants_layers or path.is_dir() or path.suffix.lower() == ".csv"):
        return _limited(read_stages(path), options), {}
    from placements.trainers.files import read_any  # which comparisons without layers do not wait for

    layers = read_measured(path)
    pipelines = {name: read_any(require_path("given", name)) for name in options.given}
    ranks = [pipeline.layout.num_devices for pipeline in pipelines.values()]
    number = options.num_devices or next(iter(ranks), None)
    if number is None:
        raise OptionError("num_devices: has no value, and nothing is given; give the number of devices")
    pieces = tuple(stage_from_layers((layer,)) for layer in layers.layers)
    chain = _limited(StageChain(layers=pieces, num_devices=number), options)
    if not pipelines:
        return chain, {}
    chunks = dict.fromkeys(pipeline.layout.num_chunks for pipeline in pipelines.values())
    layouts = layout(layers, number, options.search.num_micro_batches, list(chunks), given=pipelines)
    memory_mib = min(chain.capacities_mib, default=None)
    best = layout(layers, number, options.search.num_micro_batches, list(chunks), memory_mib)
    rows = {Path(name).stem: row for name, row in layouts.given.items()}
    if len(rows) < len(layouts.given):
        raise OptionError(f"given: two of {', '.join(layouts.given)} have one name; rename one")
    for row in best.rows:
        chunks_in_words = f" of {row.num_chunks} chunks" if row.num_chunks > 1 else ""
        rows[f"best layout, {row.schedule}{chunks_in_words}"] = row
    return chain, {name: _own(row, layers, memory_mib) for name, row in rows.items() if row.pipeline}


def read_unequal(options: CompareOptions, stages: StageChain) -> UnequalModel | None:
    """Return the model as each micro-batch takes it, where they differ; else None."""
    chosen = options.search
    if chosen.micro_batches is None:
        for name in ("length_rules", "replicas", "max_micro_batches"):
            value, remedy = getattr(chosen, name), "give search.micro_batches, or leave it out"
            require(value == getattr(SearchOptions(), name), f"search.{name}", value, "used", remedy)
        return None
    remedy = "leave it or search.micro_batches out"
    wanted = "for micro-batches that differ"
    require(chosen.method == "modulo", "search.method", chosen.method, wanted, remedy)
    require(not options.given, "given", list(options.given), wanted, remedy)
    number, rules = chosen.num_micro_batches, chosen.length_rules
    chains = read_chains(stages, require_path("search.micro_batches", chosen.micro_batches), number, rules)
    replicas, limit = chosen.replicas, chosen.max_micro_batches
    if replicas is None:
        require(limit is None, "search.max_micro_batches", limit, "used", "give search.replicas too")
        return UnequalModel(chains)
    return UnequalModel(chains, replicas, limit)


def _limited(chain: StageChain, options: CompareOptions) -> StageChain:
    memory = options.search.memory
    return chain if memory is None else with_memory(chain, memory, "search.memory")


def _own(row: LayoutRow, layers: ModelLayers, memory_mib: float | None) -> tuple[PlacedStages, Schedule]:
    assert row.pipeline is not None and row.schedule_found is not None, "it has a layout"
    placed = place_layout(row.pipeline, layers, memory_mib)
    bound = "" if row.bound_ms is None else f", none is under {row.bound_ms:,.6g} ms"
    return replace(placed, notes=(f"{row.layout}{bound}",)), row.schedule_found
