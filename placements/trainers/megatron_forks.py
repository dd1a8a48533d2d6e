"""Jobs for two forks of Megatron-LM that say more about recomputation: FlagScale and Primus.

FlagScale (Megatron-LM-FL with megatron-core 0.16) takes the number of first layers to recompute for each
virtual stage and micro-batch. It reads these lists only beside ``--hetero-process-meshes``; one mesh of all
GPUs will do. Before its pull request 26 (2026-03-31) a micro-batch that keeps all switched recomputation off
for all later ones. Its list of granularities has no entries for second chunks, so 0 layers stand for it.

Primus (with patches of Megatron-LM) takes a YAML file, and the numbers of the layers to recompute, from 0 on
over the whole model. Its zero-bubble runtime offloads the first chunks of every rank (PipeOffload).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from placements.forms.reading import Field
from placements.trainers import megatron
from placements.trainers.job import StageMode, TrainerJob
from placements.trainers.layout import LayoutError
from placements.trainers.stage_modes import ModeError, recomputed_layers, require_recompute
from placements.trainers.words import argument_text, flag_table, given

_METHODS = "--recompute-method-per-stage-micro-batch"
_NUMBERS = "--recompute-num-layers-per-stage-micro-batch"


def write_flagscale(job: TrainerJob, comments: Sequence[str] = ()) -> str:
    """Return FlagScale's arguments that say a job, one a line, below comments.

    Raises:
        LayoutError: FlagScale would refuse its stages, or has no words for its modes.
    """
    try:
        return megatron.write(job, comments)
    except ModeError:
        require_recompute(job)
    number = max(job.layout.num_micro_batches if job.layout else 1, *map(len, job.modes))
    rows = [row if len(row) > 1 else row * number for row in job.modes]
    pairs = [[(len([*run]), n) for n, run in groupby(mode.layers for mode in row)] for row in rows]
    runs = ((len([*run]), row) for row, run in groupby(pairs))
    every = replace(job, modes=tuple((StageMode("recompute", count),) for count in job.num_layers))
    options = megatron.arguments(job) | megatron.mode_arguments(every)
    options[_METHODS] = [f"[{len(rows)}, {number}, 1]"]
    options[_NUMBERS] = [str([count, *(n for pair in row for n in pair)]) for count, row in runs]
    if job.layout is None:
        comments = (*comments, "add --hetero-process-meshes TP CP EP DP PP, without which lists are not read")
    else:
        degrees = map(vars(job.layout.degrees).get, ("tensor", "context", "expert", "data", "pipeline"))
        options["--hetero-process-meshes"] = [*degrees]
        options |= {"--hetero-device-types": "GPU", "--hetero-current-device-type": "GPU"}
    return argument_text(options, comments)


def read_flagscale(words: Sequence[str], num_gpus: int) -> TrainerJob:
    """Return the job of FlagScale's arguments on `num_gpus` GPUs.

    Raises:
        LayoutError: Megatron-LM would refuse the stages, or FlagScale the lists.
    """
    job, rows = megatron.read(words, num_gpus), list[tuple[StageMode, ...]]()
    if _NUMBERS not in (flags := given(words)):
        return job
    for text in flags[_NUMBERS]:
        stages, *pairs = map(int, re.findall(r"\d+", text) or [0])
        ways = [StageMode("recompute", number) if number else StageMode() for number in pairs[1::2]]
        row = [way for number, way in zip(pairs[::2], ways, strict=False) for _ in range(number)]
        rows += [tuple(row)] * stages
    number = job.layout.num_micro_batches if job.layout else len(rows[0])
    if [len(row) for row in rows] != [number] * len(job.stages.stages):
        raise LayoutError(
            f"{_NUMBERS}: is not of {len(job.stages.stages)} stages and {number} micro-batches; give lists "
            "with a number of stages, then pairs of numbers of micro-batches and of layers"
        )
    return replace(job, modes=tuple(rows))


def write_primus(job: TrainerJob, comments: Sequence[str] = ()) -> str:
    """Return the overrides of Primus's YAML file that say a job, below comments.

    Raises:
        LayoutError: Primus would refuse its stages, or has no words for its modes.
    """
    options, data = megatron.arguments(job), dict[str, object]()
    try:
        options |= megatron.mode_arguments(job)
    except ModeError:
        kinds, ranks = [{mode.kind for mode in row} for row in job.modes], job.stages.num_devices
        count = kinds.count({"offload"}) // ranks
        if count and kinds == [{"offload"}] * count * ranks + [{"keep"}] * (len(kinds) - count * ranks):
            data = {"patch_zero_bubble": True, "enable_zb_runtime": True, "interleave_group_size": ranks}
            data |= {"cpu_offload": True, "offload_chunk_num": count}
        else:
            data = {"recompute_granularity": "full", "recompute_method": None}
            data["recompute_layer_ids"] = recomputed_layers(job)
    settings = dict(_setting(flag, value) for flag, value in options.items())
    lines = (f"{name}: {json.dumps(value)}\n" for name, value in (settings | data).items())
    return "".join([*(f"# {line}\n" for line in comments), *lines])


_NAMES = flag_table("Primus")
"""Settings whose names are others than on the command line, and those that are lists."""


def _setting(flag: str, value: object) -> tuple[str, object]:
    """Return an argument of Megatron-LM as a setting of a YAML file."""
    start = next((prefix for prefix in ("--no-", "--disable-") if flag.startswith(prefix)), "--")
    name = flag.removeprefix(start).replace("-", "_")
    if isinstance(value, list) and name not in _NAMES["list"]:
        value = Field(" ".join(value), flag, LayoutError).parsed
    return _NAMES["setting"].get(name, name), start == "--" if value is None else value
