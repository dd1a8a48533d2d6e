"""torchtitan's ``module_fqns_per_model_part`` (0.3.0): the modules of each virtual stage by their names.

The output module is ``lm_head`` there, with ``norm`` before it. torchtitan itself checks little: a name that
is not there, or a layer that no stage has, only shows in the losses. So all of it is checked here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placements.layouts.argument_words import known
from placements.layouts.layout import EMBEDDING, LAYER, LOSS, MTP, LayoutError, PipelineLayout

FIELD = "module_fqns_per_model_part"
"""Name of the option, in the section ``parallelism``."""

_MODULES = {EMBEDDING: ["tok_embeddings"], LOSS: ["norm", "lm_head"]}
"""Names of the modules of the ends; layers are ``layers.0`` and on."""


def write_parts(layout: PipelineLayout) -> list[list[str]]:
    """Return the names of the modules of each virtual stage.

    Raises:
        LayoutError: torchtitan cannot run the layout.

    >>> write_parts(PipelineLayout(2, ("Et", "tL")))
    [['tok_embeddings', 'layers.0'], ['layers.1', 'norm', 'lm_head']]
    """
    if MTP in layout.parts:
        raise LayoutError(
            "layout: torchtitan: MTP does not support pipeline parallelism yet; leave out MTP, or use "
            "Megatron-LM"
        )
    if "" in layout.stages:
        raise LayoutError(
            f"layout: torchtitan 0.3.0: stage {layout.stages.index('')} is empty, which no list of modules "
            "says; give each stage a layer"
        )
    _check_order(layout.parts, "layout")
    return [
        [name for part, number in stage for name in _MODULES.get(part, [f"layers.{number}"])]
        for stage in layout.numbered
    ]


def read_parts(parts: Sequence[Sequence[str]], num_devices: int, where: str = FIELD) -> PipelineLayout:
    """Return the layout that lists of modules say.

    Args:
        parts: Names of the modules of each virtual stage.
        num_devices: Its ``pipeline_parallel_degree``.
        where: Name of the lists in messages.

    Raises:
        LayoutError: A module is unknown, missing, there twice or out of order; or the ranks do not divide the
            stages, as torchtitan says it.
    """
    if num_devices < 1 or len(parts) % num_devices or not parts:
        raise LayoutError(
            f"{where}: torchtitan: num_stages {len(parts)} must be evenly divisible by pp_degree "
            f"{num_devices}; change the number of lists or pipeline_parallel_degree"
        )
    stages, numbers = [], []
    for i, names in enumerate(parts):
        stage = ""
        for name in names:
            prefix, _, number = name.partition(".")
            if name in ("tok_embeddings", "norm", "lm_head"):
                stage += {"tok_embeddings": EMBEDDING, "norm": "", "lm_head": LOSS}[name]
            elif prefix == "layers" and number.isdecimal():
                stage += LAYER
                numbers.append(int(number))
            else:
                raise LayoutError(
                    f"{where}[{i}]: {name!r} is no module of a decoder; use tok_embeddings, layers.N, norm "
                    "and lm_head"
                )
        stages.append(stage)
    for expected, found_number in enumerate(numbers):
        if found_number != expected:
            raise LayoutError(
                f"{where}: layers.{found_number} stands where layers.{expected} should; name each once, in "
                "their order"
            )
    found = PipelineLayout(num_devices, tuple(stages))
    _check_order(found.parts, where)
    if [name for names in parts for name in names].count("norm") != 1 or "norm" not in parts[-1]:
        raise LayoutError(f"{where}: norm has to stand once, with lm_head on the last stage; put it there")
    return found


def _check_order(parts: str, where: str) -> None:
    if parts != EMBEDDING + LAYER * parts.count(LAYER) + LOSS:
        raise LayoutError(
            f"{where}: torchtitan needs tok_embeddings first, then all layers, then lm_head, each once; "
            "change the order"
        )


CONFIG_FLAGS = ("--job.config_file", "--job.config-file")
"""Where a job's TOML is said, whose fields other flags change."""
SECTION = "--parallelism."
PARTS_FLAG = f"{SECTION}{FIELD}"
DEGREE_FLAG = f"{SECTION}pipeline_parallel_degree"
SCHEDULE_FLAG = f"{SECTION}pipeline_parallel_schedule"


def write_job(layout: PipelineLayout) -> dict[str, object]:
    """Return the flags of a job that say a layout, and the schedule for it, by their names.

    Raises:
        LayoutError: torchtitan cannot run it.
    """
    return {
        DEGREE_FLAG: layout.num_devices,
        SCHEDULE_FLAG: "1F1B" if layout.num_chunks == 1 else "Interleaved1F1B",
        PARTS_FLAG: [",".join(names) for names in write_parts(layout)],
    }


def layout_of_flags(flags: Mapping[str, Sequence[str]]) -> PipelineLayout:
    """Return the layout that flags say; as torchtitan does, dashes and underscores are alike.

    Raises:
        LayoutError: They do not, or torchtitan cannot run it.
    """
    said = {f"--{name[2:].replace('-', '_')}": words for name, words in flags.items()}
    read = (DEGREE_FLAG, PARTS_FLAG, SCHEDULE_FLAG)
    degree, parts, schedule = ([known(flag, word) for word in said.get(flag, ())] for flag in read)
    for flag in read[:2]:
        if flag not in said:
            raise LayoutError(f"has no {flag}; give it")
    if len(degree) != 1 or not degree[0].isdecimal():
        raise LayoutError(f"{DEGREE_FLAG}: {' '.join(degree)!r} is not a whole number; give one")
    found = read_parts([names.split(",") for names in parts], int(degree[0]))
    expected = "1F1B" if found.num_chunks == 1 else "Interleaved1F1B"
    if schedule and [each.lower() for each in schedule] != [expected.lower()]:
        raise LayoutError(
            f"{SCHEDULE_FLAG}: {' '.join(schedule)} with {found.num_chunks} stages on each rank is not read; "
            f"use {expected}"
        )
    return found
