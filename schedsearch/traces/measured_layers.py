"""Times of the layers of a model, from a CSV, a log of Megatron-LM, a profile or a trace.

Memory is in no measurement, and is 0.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from placements.block import PlacementError
from placements.forms.reading import in_file
from placements.placement_file import read_placement
from placements.trainers.layers import ModelLayers, RankTimes, layers_from_ranks, read_layers
from placements.trainers.layout import EMBEDDING, LAYER, LOSS, LayoutError, PipelineLayout
from placements.trainers.megatron_layout import read_notation
from schedsearch.traces.block_times import block_times
from schedsearch.traces.megatron_log import read_log
from schedsearch.traces.reading import CHROME, LOG, form_of
from schedsearch.traces.table import TraceError
from schedsearch.traces.texts import text_of


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
    is_yaml = path.suffix.lower() in (".yaml", ".yml")
    try:
        form = form_of(path) if path.is_file() and not is_yaml else None
        is_trace = path.is_dir() or form == CHROME or path.name.lower().endswith((".json.gz", ".json"))
        if parts is not None and not is_yaml and (form == LOG or not is_trace):
            raise LayoutError(f"measured_layout: {path} says itself which parts it has; leave it out")
        with in_file(path, LayoutError):
            if is_yaml:
                placement = read_placement(path)
                blocks = {block.name: placement.ms(block.time) for block in placement.blocks}
            elif form == LOG:
                return layers_from_ranks(read_log(text_of(path)).rank_times)
            elif is_trace:
                blocks = {name: figures.median_ms for name, figures in block_times(path).items()}
            else:
                return read_layers(path)
            return layers_from_ranks(_of_blocks(blocks, parts))
    except (PlacementError, TraceError) as error:
        raise LayoutError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def _of_blocks(times: Mapping[str, float], parts: str | None) -> RankTimes:
    """Return the times of stages from the times of their blocks."""
    sums = defaultdict[tuple[str, int], float](float)
    for name, time_ms in times.items():
        match = re.fullmatch(r"([FBIW])(\d+)", name)
        if match is None:
            raise LayoutError(f"block {name!r} is of no stage; give blocks F0, B0, F1, B1 ...")
        sums["F" if match[1] == "F" else "B", int(match[2])] += time_ms
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
