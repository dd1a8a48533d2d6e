"""Times and memory of the layers of a model: from a CSV with a row for each, or from measurements.

A measurement is a log of Megatron-LM, a profile of ours or a trace. Where a stage or a rank has several
parts, its time is divided: transformer layers of one stage take equally long, and the embedding and the loss
take the rest. Memory is in none of these files, and is 0.

Facts of Megatron-LM with megatron-core 0.16 and ``--log-timing-level 2 --timing-log-option all``: a timer has
the time of an iteration in ms, all micro-batches together, in a line for each rank; it is the mean of the
iterations since the last report. Ranks of a pipeline stage follow each other. The arguments stand at a run's
begin.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mean, median
from typing import Annotated, NamedTuple

from placements.block import PlacementError
from placements.forms.meaning import Meaning
from placements.forms.reading import in_file
from placements.forms.tables import csv_records, keys_of
from placements.forms.texts import csv_text
from placements.measured.run_trace import TraceError, read_traces
from placements.placement_file import read_placement
from placements.trainers.layout import (
    EMBEDDING,
    LAYER,
    LOSS,
    MTP,
    PARTS,
    LayoutError,
    PartKind,
    PipelineLayout,
)
from placements.trainers.megatron_layout import DASHED, pipeline_of, read_notation

_ENDS = {EMBEDDING, LOSS}
_SHARE_OF_NOTHING = 1e-3
"""Time of an end for which nothing is left, in times of a layer."""

FORWARD, BACKWARD = "forward-compute", "backward-compute"
"""Names of the timers."""

_ARGUMENT = re.compile(r"(?:^|[\s:])([a-z][a-z0-9_]*) \.{2,} (.*?)\s*$", re.MULTILINE)
_ALL = r"{}:[^\S\n]*\n(.*?)(?=^[^\n]*[\w-]:[^\S\n]*$|\biteration\s|\Z)"
_RANK = re.compile(r"\brank\s+(\d+): (\S+)")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_BATCH = ("global_batch_size", "micro_batch_size", "data_parallel_size")
_PIPELINE = {name[2:]: flag for name, flag in DASHED.items()}

PART_OF_KIND = {kind: letter for letter, kind in PARTS.items()}
"""Letters of the parts by their kinds."""


@dataclass(frozen=True)
class ModelLayer:
    """A part of a model, for one micro-batch on one device."""

    layer: Annotated[str, Meaning("a name of its own")]
    kind: Annotated[PartKind, Meaning("what it is")]
    forward_ms: Annotated[float, Meaning("time of its forward", "ms", above=0)]
    backward_ms: Annotated[float, Meaning("time of its backward", "ms", above=0)]
    activation_mib: Annotated[float, Meaning("held from its forward to its backward", "MiB", min=0)]
    weight_mib: Annotated[float, Meaning("held all the time: weights, gradients, optimizer", "MiB", min=0)]


@dataclass(frozen=True)
class ModelLayers:
    """The parts of a model in their order: an embedding, layers, perhaps MTP, the loss.

    Attributes:
        layers: Times and memory of each.
        assumptions: How they were found, a line each; none where they are of a CSV.

    Raises:
        LayoutError: They are others, or in another order; or a name is there twice.
    """

    layers: tuple[ModelLayer, ...]
    assumptions: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Check the order of the parts, and their names."""
        names = [each.layer for each in self.layers]
        for row, name in enumerate(names):
            if name in names[:row]:
                raise LayoutError(
                    f"row {row + 1}, layer: {name!r} is there twice; give each a name of its own"
                )
        if not re.fullmatch(f"{EMBEDDING}{LAYER}+{MTP}*{LOSS}", self.parts):
            raise LayoutError(
                "kind: the rows are not an embedding, then layers, perhaps mtp, and then a loss; give them so"
            )

    @cached_property
    def parts(self) -> str:
        """Their letters in order."""
        return "".join(PART_OF_KIND[each.kind] for each in self.layers)

    @property
    def has_memory(self) -> bool:
        """Whether any of them holds memory."""
        return any(each.activation_mib or each.weight_mib for each in self.layers)

    @property
    def num_layers(self) -> int:
        """Transformer layers."""
        return self.parts.count(LAYER)

    @property
    def num_mtp(self) -> int:
        """Layers of MTP."""
        return self.parts.count(MTP)

    def to_csv(self) -> str:
        """Return the CSV that `read_layers` reads."""
        columns = keys_of(ModelLayer)
        return csv_text(columns, ([getattr(each, name) for name in columns] for each in self.layers))


class RankTimes(NamedTuple):
    """Times of a micro-batch on each rank of a pipeline: of all its forwards, and of all its backwards."""

    layout: PipelineLayout
    forward_ms: tuple[float, ...]
    backward_ms: tuple[float, ...]


def read_layers(path: str | Path) -> ModelLayers:
    """Read the layers of a model.

    Raises:
        LayoutError: The file cannot be read or is wrong; one line with its path, the row, the column and the
            remedy.
    """
    with in_file(path, LayoutError):
        rows = csv_records(Path(path), "layer", LayoutError, ModelLayer)
        return ModelLayers(tuple(row for _, row in rows))


def read_measured(path: str | Path, parts: str | None = None) -> ModelLayers:
    """Read the layers of a model from a CSV, a log, a profile or a trace, told apart by their content.

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
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    is_log = FORWARD in text or BACKWARD in text or bool(re.search(r" \.{4,} ", text))
    is_json = path.is_dir() or path.name.lower().endswith((".json.gz", ".json")) or text[:1] in ("{", "[")
    is_yaml = path.suffix.lower() in (".yaml", ".yml")
    if parts is not None and not is_yaml and (is_log or not is_json):
        raise LayoutError(f"measured_layout: {path} says itself which parts it has; leave it out")
    try:
        with in_file(path, LayoutError):
            if is_yaml:
                placement = read_placement(path)
                blocks = {block.name: placement.ms(block.time) for block in placement.blocks}
            elif is_json and not is_log:
                blocks = {name: each.median_ms for name, each in read_traces(path).items()}
            else:
                return layers_of(read_log(text)) if is_log else read_layers(path)
            return layers_of(_of_blocks(blocks, parts))
    except (PlacementError, TraceError) as error:
        raise LayoutError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def _of_blocks(times: Mapping[str, float], parts: str | None) -> RankTimes:
    """Return the times of stages from the times of their blocks."""
    sums = defaultdict[tuple[str, int], float](float)
    for name, time_ms in times.items():
        found = re.fullmatch(r"([FBIW])(\d+)", name)
        if found is None:
            raise LayoutError(f"block {name!r} is of no stage; give blocks F0, B0, F1, B1 ...")
        sums["F" if found[1] == "F" else "B", int(found[2])] += time_ms
    number = max(sum(of == kind for of, _ in sums) for kind in "FB")
    for kind, word in (("F", "forward"), ("B", "backward")):
        if missing := [i for i in range(number) if (kind, i) not in sums]:
            raise LayoutError(f"has no {word} {kind}{missing[0]}; measure all blocks of a model")
    if parts is not None:
        stages = read_notation(parts, 1, "measured_layout").stages
    elif number < 3:
        raise LayoutError(
            f"has {number} stages, and not which parts of the model they are; give measured_layout, such as "
            "'Et*8|t*8L'"
        )
    else:
        stages = (EMBEDDING, *[LAYER] * (number - 2), LOSS)
    if len(stages) != number:
        raise LayoutError(f"measured_layout has {len(stages)} stages, and the file {number}; give as many")
    forward_ms, backward_ms = (tuple(sums[kind, i] for i in range(number)) for kind in "FB")
    return RankTimes(PipelineLayout(number, stages), forward_ms, backward_ms)


def read_log(text: str) -> RankTimes:
    """Return the times in the text of a log; of several runs, of the last one with timers.

    Raises:
        LayoutError: The log lacks the arguments or a timer, or its batch grows; one line with the remedy.
    """
    text = _COLOUR.sub("", text)
    last = max(text.rfind(FORWARD), text.rfind(BACKWARD))
    found = list(_ARGUMENT.finditer(text, 0, last if last > 0 else len(text)))
    arguments = {each[1]: each[2] for each in found}
    for name in ("num_layers", *_BATCH):
        if name not in arguments:
            raise LayoutError(
                f"{name}: is not in the log; keep its begin, where Megatron-LM prints its arguments"
            )
    if (ramp_up := arguments.get("rampup_batch_size", "None")) != "None":
        raise LayoutError(f"rampup_batch_size: is {ramp_up}, so that the batch grows; train without it")
    said = {flag: arguments.get(name, "None") for name, flag in _PIPELINE.items()}
    pairs = (pair for pair in said.items() if pair[1] not in ("None", "False"))
    layout = pipeline_of([word for pair in pairs for word in pair]).layout
    whole, one, copies = (
        int(_number(name, arguments[name], "0*[1-9][0-9]*", "a whole number above 0")) for name in _BATCH
    )
    if whole % (one * copies):
        raise LayoutError(
            f"global_batch_size: {whole} is no multiple of micro_batch_size {one} times data_parallel_size "
            f"{copies}; give the log of one run"
        )
    begin = next(each.start() for each in reversed(found) if each[1] in (*_BATCH, *_PIPELINE))
    run, number = text[begin:], whole // one // copies
    forward_ms, backward_ms = (_timer(run, name, layout, number) for name in (FORWARD, BACKWARD))
    return RankTimes(layout, forward_ms, backward_ms)


def _number(name: str, text: str, pattern: str, what: str) -> float:
    if not re.fullmatch(pattern, text):
        raise LayoutError(f"{name}: {text!r} is not {what}; give the log as it was written")
    return float(text)


def _timer(text: str, name: str, layout: PipelineLayout, number: int) -> tuple[float, ...]:
    """Return the time of a micro-batch on each pipeline rank: the median of all reports but the first.

    Each report is of so many micro-batches.
    """
    reports = list[dict[int, float]]()
    for report in re.finditer(_ALL.format(name), text, re.DOTALL | re.MULTILINE):
        times = {
            int(rank): _number(name, time_ms, r"\d+(\.\d+)?", "a time in ms") / number
            for rank, time_ms in _RANK.findall(report[1])
        }
        reports += [times] if times else []
    if not reports:
        raise LayoutError(
            f"{name}: is not in the log for each rank; train with --log-timing-level 2 "
            "--timing-log-option all"
        )
    steady = reports[1:] or reports
    # The end of the last report may be cut off.
    steady = steady[:-1] if 0 < len(steady[-1]) < len(steady[0]) else steady
    world, ranks = len(steady[0]), layout.num_devices
    if world % ranks or any(times.keys() != set(range(world)) for times in steady):
        raise LayoutError(
            f"{name}: has {world} ranks, and the pipeline {ranks}; give the log of one whole run"
        )
    of_rank = [median(times[rank] for times in steady) for rank in range(world)]
    share = world // ranks
    return tuple(mean(of_rank[i * share : (i + 1) * share]) for i in range(ranks))


def layers_of(ranks: RankTimes) -> ModelLayers:
    """Divide the times of stages or ranks among their parts.

    Raises:
        LayoutError: An embedding and a loss stand together, or there is no layer, so that nothing tells
            their times.

    >>> layout = PipelineLayout(3, ("Ett", "tt", "ttL"))
    >>> found = layers_of(RankTimes(layout, (5.0, 4.0, 6.0), (9.0, 8.0, 12.0)))
    >>> [(each.kind, each.forward_ms) for each in found.layers][:2]
    [('embedding', 1.0), ('layer', 2.0)]
    """
    parts = ranks.layout.of_rank
    if any(EMBEDDING in each and LOSS in each and len(each) > 1 for each in parts):
        raise LayoutError(
            "the embedding and the loss are in one time with the layers; measure two stages or more"
        )
    forward, backward = (_divided(parts, times_ms) for times_ms in (ranks.forward_ms, ranks.backward_ms))
    rows = []
    for i, stage in enumerate(ranks.layout.numbered):
        rank = i % ranks.layout.num_devices
        for part, number in stage:
            is_end, kind = part in _ENDS, PARTS[part]
            name = kind if is_end else f"{kind}s.{number}"
            rows.append(ModelLayer(name, kind, forward[rank][is_end], backward[rank][is_end], 0.0, 0.0))
    rows.sort(key=lambda row: list(PART_OF_KIND).index(row.kind))
    lines = ["memory is not in the file: 0 MiB; fill it into layers.csv"]
    if any(len(each) > 1 for each in parts):
        is_known = any(each and not _ENDS & {*each} for each in parts)
        layers = "as long" if is_known else "as long, and the embedding or the loss next to nothing"
        lines.append(f"layers of one stage are assumed to take {layers}")
    return ModelLayers(tuple(rows), tuple(lines))


def _divided(groups: Sequence[str], times_ms: Sequence[float]) -> list[tuple[float, float]]:
    """Return the times of a layer and of an end in each group.

    MTP counts as a layer beside one. Layers beside an embedding or a loss are as those of the other groups.
    """
    pairs = list(zip(groups, times_ms, strict=True))
    pure = [time / len(each) for each, time in pairs if each and not _ENDS & {*each}]
    mixed = [time / num for each, time in pairs if (num := sum(part not in _ENDS for part in each))]
    if not mixed:
        raise LayoutError("there is no transformer layer; give stages with layers")
    usual = median(pure) if pure else min(mixed)
    found = []
    for each, time in pairs:
        others = max(1, len(each) - 1)
        layer = min(usual, time / others) if _ENDS & {*each} else time / max(1, len(each))
        end = max(time - layer * (len(each) - 1), _SHARE_OF_NOTHING * usual)
        found.append((round(layer, 6), round(end, 6)))
    return found
