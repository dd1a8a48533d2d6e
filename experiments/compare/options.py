"""Options of a comparison."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.declaring import Command
from experiments.search.options import SearchOptions, read_options
from placements.forms.meaning import REQUIRED, Verbatim, group, option


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The config of `experiments.compare`."""

    stages: Verbatim = option(
        REQUIRED, "a YAML file of stages or layers, or layers as for schedsearch layout"
    )
    given: tuple[Verbatim, ...] = option(
        (), "with layers as for layout: files of Megatron-LM's or torchtitan's arguments, to put first"
    )
    num_devices: int | None = option(None, "with layers as for layout: devices; null: as in given", min=1)
    schedules: tuple[str, ...] = option(
        ("searched", "one_f_one_b", "interleaved_one_f_one_b", "zb_v", "dual_pipe"),
        "also searched@v_shape and the like",
    )
    num_chunks: int = option(2, "pieces of the model on each device, where a schedule has several")
    export: str | None = option(
        None, "perfetto: also all schedules in trace.json, for ui.perfetto.dev", choices=("perfetto",)
    )
    search: SearchOptions = group(headline="The search")


COMMAND = Command(
    "compare",
    CompareOptions,
    task="experiments.compare.task",
    read=read_options,
    first="stages schedules given num_devices search.num_micro_batches search.memory search.time_limit_s",
    refused=("search.begin_with", "search.export", "search.scenarios", "search.scenario_quantile"),
)
