"""Layers of a model from what was measured: a log of Megatron-LM, a profile of ours, a trace, or their CSV.

Where a stage or a rank has several parts, its time is divided: transformer layers of one stage take equally
long, and the embedding and the loss take what is left. Memory is in none of these files, and is 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from placements.block import PlacementError
from placements.forms.reading import in_file
from placements.forms.tables import keys_of
from placements.forms.texts import csv_text
from placements.layouts.layer_file import ModelLayer, ModelLayers, read_layers
from placements.layouts.layout import EMBEDDING, LAYER, LOSS, MTP, PARTS, LayoutError, PipelineLayout
from placements.layouts.megatron_log import BACKWARD, FORWARD, RankTimes, read_log
from placements.layouts.megatron_notation import read_notation
from placements.measured.run_trace import TraceError, block_times, read_traces
from placements.placement_file import read_placement

_BLOCK = re.compile(r"([FBIW])(\d+)")
_SHARE_OF_NOTHING = 1e-3
"""Time of an end for which nothing is left, in times of a layer."""


class MeasuredLayers(NamedTuple):
    """Layers, and how they were found.

    Attributes:
        layers: Times and memory of each.
        lines: What is assumed, a line each; none where the file is their CSV.
    """

    layers: ModelLayers
    lines: tuple[str, ...] = ()

    def to_csv(self) -> str:
        """Return the CSV that `read_layers` reads."""
        columns = keys_of(ModelLayer)
        rows = ([getattr(each, name) for name in columns] for each in self.layers.layers)
        return csv_text(columns, rows)


def read_measured(path: str | Path, parts: str | None = None) -> MeasuredLayers:
    """Read the layers of a model from any of these files, which its content tells apart.

    Args:
        path: A CSV of layers; a log of Megatron-LM; a folder of `experiments.profile`, or a placement whose
            forwards are ``F0``, ``F1`` ... and backwards ``B0`` ..., or ``I0`` and ``W0``; or a trace of
            such blocks, in Chrome's JSON form.
        parts: Parts of each block's stage, in Megatron-LM's notation; None where the first block is the
            embedding, the last the loss, and each other a layer. Not for a CSV or a log, which say it.

    Raises:
        LayoutError: The file cannot be read or is wrong; one line with its path, the place and the remedy.
    """
    path = Path(path)
    if (path / "placement.yaml").is_file():
        path /= "placement.yaml"
    form = _form(path)
    if form in ("csv", "log"):
        if parts is not None:
            raise LayoutError(f"measured_layout: {path} says itself which parts it has; leave it out")
        with in_file(path, LayoutError):
            if form == "csv":
                return MeasuredLayers(read_layers(path))
            return layers_of(read_log(path.read_text(encoding="utf-8", errors="replace")))
    try:
        times = _of_placement(path) if form == "placement" else _of_trace(path)
    except (PlacementError, TraceError) as error:
        text = str(error)
        raise LayoutError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    ranks = _of_blocks(times, path, parts)
    with in_file(path, LayoutError):
        return layers_of(ranks)


def _form(path: Path) -> str:
    """Return what a file is, by its first characters."""
    if path.is_dir() or path.name.lower().endswith((".json.gz", ".json")):
        return "trace"
    if path.suffix.lower() in (".yaml", ".yml"):
        return "placement"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    is_log = FORWARD in text or BACKWARD in text or re.search(r" \.{4,} ", text)
    return "log" if is_log else "trace" if text[:1] in ("{", "[") else "csv"


def _of_placement(path: Path) -> dict[str, float]:
    placement = read_placement(path)
    return {block.name: placement.ms(block.time) for block in placement.blocks}


def _of_trace(path: Path) -> dict[str, float]:
    return {name: each.median_ms for name, each in block_times(read_traces(path)).items()}


def _of_blocks(times: Mapping[str, float], path: Path, parts: str | None) -> RankTimes:
    """Return the times of stages from those of blocks."""
    sums: dict[str, dict[int, float]] = {"F": {}, "B": {}}
    for name, time_ms in times.items():
        found = _BLOCK.fullmatch(name)
        if found is None:
            raise LayoutError(f"{path}: block {name!r} is of no stage; give blocks F0, B0, F1, B1 ...")
        kind, stage = "F" if found[1] == "F" else "B", int(found[2])
        sums[kind][stage] = sums[kind].get(stage, 0.0) + time_ms
    number = len(sums["F"])
    for kind, word in (("F", "forward"), ("B", "backward")):
        missing = sorted(set(range(max(number, len(sums["B"])))) - sums[kind].keys())
        if missing:
            raise LayoutError(f"{path}: has no {word} {kind}{missing[0]}; measure all blocks of a model")
    if parts is None:
        if number < 3:
            raise LayoutError(
                f"{path}: has {number} stages, and not which parts of the model they are; give "
                "measured_layout, such as 'Et*8|t*8L'"
            )
        stages: tuple[str, ...] = (EMBEDDING, *[LAYER] * (number - 2), LOSS)
    else:
        stages = read_notation(parts, 1, "measured_layout").stages
        if len(stages) != number:
            raise LayoutError(f"measured_layout: has {len(stages)} stages, and {path} {number}; give as many")
    layout = PipelineLayout(number, stages)
    forward_ms, backward_ms = (tuple(sums[kind][i] for i in range(number)) for kind in ("F", "B"))
    return RankTimes(layout, forward_ms, backward_ms)


def layers_of(ranks: RankTimes) -> MeasuredLayers:
    """Divide the times of stages or ranks among their parts.

    Raises:
        LayoutError: An embedding and a loss stand together, or there is no layer, so that nothing tells
            their times.

    >>> layout = PipelineLayout(3, ("Ett", "tt", "ttL"))
    >>> found = layers_of(RankTimes(layout, (5.0, 4.0, 6.0), (9.0, 8.0, 12.0)))
    >>> [(each.kind, each.forward_ms) for each in found.layers.layers][:2]
    [('embedding', 1.0), ('layer', 2.0)]
    """
    if any(EMBEDDING in each and LOSS in each and len(each) > 1 for each in ranks.parts):
        raise LayoutError(
            "the embedding and the loss are in one time with the layers; measure two stages or more"
        )
    (forward, is_known), (backward, _) = (
        _divided(ranks.parts, each) for each in (ranks.forward_ms, ranks.backward_ms)
    )
    rows: dict[str, list[ModelLayer]] = {part: [] for part in (EMBEDDING, LAYER, MTP, LOSS)}
    for i, stage in enumerate(ranks.layout.numbered):
        rank = i % ranks.layout.num_devices
        for part, number in stage:
            name = PARTS[part] if part in (EMBEDDING, LOSS) else f"{PARTS[part]}s.{number}"
            times = next(forward[rank]), next(backward[rank])
            rows[part].append(ModelLayer(name, PARTS[part], *times, 0.0, 0.0))
    lines = ["memory is not in the file: 0 MiB; fill it into layers.csv"]
    if any(len(each) > 1 for each in ranks.parts):
        layers = "as long" if is_known else "as long, and the embedding or the loss next to nothing"
        lines.append(f"layers of one stage are assumed to take {layers}")
    lines += [f"it is assumed that {ranks.note}"] if ranks.note else []
    return MeasuredLayers(ModelLayers(tuple(row for each in rows.values() for row in each)), tuple(lines))


def _divided(groups: Sequence[str], times_ms: Sequence[float]) -> tuple[list[Iterator[float]], bool]:
    """Return the times of the parts of each group, in order, and whether a group has nothing but layers.

    MTP counts as a layer beside one. Layers beside an embedding or a loss are as those of the other groups.
    """
    ends, pairs = (EMBEDDING, LOSS), list(zip(groups, times_ms, strict=True))
    pure = [time / len(each) for each, time in pairs if each and not set(each) & set(ends)]
    mixed = [time / num for each, time in pairs if (num := sum(part not in ends for part in each))]
    if not mixed:
        raise LayoutError("there is no transformer layer; give stages with layers")
    usual = median(pure) if pure else min(mixed)
    found = []
    for each, time in pairs:
        alone = not set(each) & set(ends)
        layer = time / len(each) if alone and each else min(usual, time / max(1, len(each) - 1))
        rest = max(time - layer * (len(each) - 1), _SHARE_OF_NOTHING * usual)
        found.append(iter([round(rest if part in ends else layer, 6) for part in each]))
    return found, bool(pure)
