"""The cases of the planners' benchmark: PipeDream's planner, and measured pipelines of unbalanced stages.

Measured profiles and runs are no part of this project; where they are not there, their rows are skipped. CPU
limits are of one core of about 2.6 GHz.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.comparison import missing_file
from experiments.benchmarks.planners.measuring import (
    against_every_plan,
    configuration,
    errors_together,
    imbalance,
    moved,
    prediction,
    random_chain,
    shared_output,
)
from experiments.benchmarks.planners.plan_searches import beside_others, whole_search
from experiments.benchmarks.results import BenchmarkCase, CaseResult
from experiments.benchmarks.timing import load_solvers
from experiments.reproduce.measured.measured_iterations import read_measured_iterations
from placements.models.gpt.gpt_config import GptConfig
from placements.models.zoo.convolutional import VISION_MODELS
from placements.planners.pipedream.computed_profile import computed_profile
from placements.planners.pipedream.profile_graph import read_profile_graph
from placements.planners.pipedream.topology import Level

SHARED_DATA = Path(__file__).parents[4] / "shared" / "data"
"""Beside the project: PipeDream's profiles, and the runs of Vocabulary Parallelism."""

CPU_S = 8.0
"""CPU seconds that any plan may take, as in the dissertation (Sec. 2.4.1)."""

CLUSTERS = {
    "16 workers, 10 Gbps": (Level(16, 1.25),),
    "4x4 workers, PCIe and 10 Gbps (A)": (Level(4, 12.0), Level(4, 1.25)),
    "2x8 workers, NVLink and 25 Gbps (B)": (Level(8, 20.0), Level(2, 3.125)),
    "4 workers, PCIe": (Level(4, 12.0),),
}
"""The dissertation's clusters (Table 2.1), inner bandwidths assumed, and a flat one at the slowest link."""

FLAT = "16 workers, 10 Gbps"

BATCH_SIZES = {"vgg16": 64, "alexnet": 256, "resnet50": 128}
"""Images on each worker (Sec. 2.5.1)."""

TABLE_2_2 = {"vgg16": "15-1", "alexnet": "15-1", "resnet50": "16"}
"""Published configurations of 4x4 workers, which the two-level formula cannot express but a flat one can."""

PRINTED = {"vgg16": "12-3-1", "alexnet": "15-1", "resnet50": "8-8"}
"""What the printed formula gives for the computed profiles."""


GPT_3 = {
    "1B": (24, 2048, {4: 1.17, 8: 1.33}),
    "3B": (32, 2560, {4: 1.13, 8: 1.25}),
    "7B": (32, 4096, {4: 1.11, 8: 1.23}),
    "13B": (40, 5120, {4: 1.08, 8: 1.17}),
    "175B": (96, 12288, {4: 1.02, 8: 1.03}),
}
"""Layers, hidden size, and the least ratio of the longest to the shortest stage (Perseus, Table 7, A100)."""


def pipedream() -> Iterator[BenchmarkCase]:
    """Yield configurations from shapes and from measured profiles."""
    for model in BATCH_SIZES:
        for sync, wanted in (("per_worker", TABLE_2_2[model]), ("printed", PRINTED[model])):
            yield BenchmarkCase(
                f"{model} from shapes, {FLAT}, {sync}",
                wanted + (" as in Table 2.2" if sync == "per_worker" else ""),
                partial(_on_shapes, model, sync, wanted),
                is_quick=(model, sync) == ("alexnet", "per_worker"),
            )
    for model in (*TABLE_2_2, "gnmt"):
        path = SHARED_DATA / "pipedream" / f"{model}.csv"
        for cluster, levels in CLUSTERS.items():
            published = TABLE_2_2.get(model) if cluster == FLAT else None
            yield BenchmarkCase(
                f"{model} measured, {cluster}",
                (f"{published} as in Table 2.2, " if published else "") + f"{CPU_S:g} CPU s",
                partial(_on_measured, path, levels, published),
                is_quick=(model, cluster) == ("vgg16", FLAT),
                lacks=partial(missing_file, path),
            )


def pipedream_speed() -> Iterator[BenchmarkCase]:
    """Yield larger models and more workers, and small ones beside all plans."""
    flat, two_levels = (Level(16, 1.25),), (Level(4, 12.0), Level(4, 1.25))
    sizes = [(nodes, flat) for nodes in (50, 200, 800)] + [(nodes, two_levels) for nodes in (50, 200, 400)]
    for nodes, levels in (*sizes, (200, (Level(8, 20.0), Level(16, 3.125))), (200, (Level(128, 3.125),))):
        workers = "x".join(str(level.count) for level in reversed(levels))
        measure = partial(configuration, random_chain(nodes, seed=nodes), levels, cpu_s=CPU_S)
        is_quick = (nodes, levels) == (50, flat)
        yield BenchmarkCase(f"chain of {nodes}, {workers} workers", f"{CPU_S:g} CPU s", measure, is_quick)
    for nodes, count in ((8, 4), (10, 6), (12, 8)):
        name = f"chain of {nodes}, {count} workers, beside all plans"
        measure = partial(against_every_plan, random_chain(nodes, seed=nodes), Level(count, 1.25))
        yield BenchmarkCase(name, "the least time of all", measure, is_quick=nodes == 8)


def unbalanced() -> Iterator[BenchmarkCase]:
    """Yield predictions of measured runs, and what other placements of their output layer bring."""
    path = SHARED_DATA / "vocabulary_parallelism" / "measured_iterations.csv"
    rows = read_measured_iterations(path) if path.exists() else []
    yield BenchmarkCase(
        "all runs",
        "predictions within 2 %",
        partial(errors_together, rows, most=2.0),
        is_quick=True,
        lacks=partial(missing_file, path),
    )
    for row in rows:
        yield BenchmarkCase(f"{row.case}: prediction", "within 2 %", partial(prediction, row, most=2.0))
    for row in (row for row in rows if row.case.startswith("base_")):
        model = row.case.partition("_")[2]
        others = [each for each in rows if each.case.partition("_")[2] == model and each is not row]
        must = "period proved; no longer than with none moved"
        yield BenchmarkCase(f"{row.case}: layers moved", must, partial(moved, row, others, work_limit=10.0))
        for number, at_load in ((8, False), (12, True)):
            yield BenchmarkCase(
                f"{row.case}: output layer on all devices, {number} in flight",
                "period is the load" if at_load else "period at most that of 1F1B+",
                partial(shared_output, row, num_in_flight=number, work_limit=20.0, at_load=at_load),
            )


def _on_shapes(model: str, sync: str, wanted: str) -> CaseResult:
    graph = computed_profile(VISION_MODELS[model](), BATCH_SIZES[model], tflops=10.0)
    return configuration(graph, CLUSTERS[FLAT], cpu_s=CPU_S, sync=sync, wanted=wanted)


def _on_measured(path: Path, levels: Sequence[Level], wanted: str | None) -> CaseResult:
    return configuration(read_profile_graph(path), levels, cpu_s=CPU_S, wanted=wanted)


def imbalances() -> Iterator[BenchmarkCase]:
    """Yield divisions of GPT-3's layers by operations, beside those by measured times."""
    for name, (num_layers, hidden_size, published) in GPT_3.items():
        config = GptConfig(num_layers, hidden_size, hidden_size // 128, 50_257, 2048, 1)
        measure = partial(imbalance, config, published, most=0.02)
        must = "within 0.02 of Perseus, Table 7, A100"
        yield BenchmarkCase(f"GPT-3 {name}, 4 and 8 stages", must, measure, is_quick=name == "1B")


PLAN_SEARCHES = (
    ("llama2_7b", "a100_8", 64, 16.0, 2.0),
    ("llama2_7b", "a100_8", 64, 36.0, 2.0),
    ("llama2_7b", "a100_8", 64, 80.0, 2.0),
    ("llama2_13b", "a100_32", 512, 80.0, 2.0),
    ("llama2_13b", "a100_64", 512, 24.0, 2.0),
    ("gpt3_175b", "a100_64", 512, 80.0, 2.0),
    ("gpt3_175b", "a100_64", 1536, 60.0, 2.0),
    ("bert_xhuge", "galvatron_a100_64", 512, 16.0, 2.0),
    ("mixtral_8x7b", "h100_64", 256, 80.0, 2.0),
    ("swin_huge_48", "galvatron_titan_8", 256, 8.0, 10.0),
    ("t5_large_48", "galvatron_titan_16", 256, 8.0, 10.0),
    ("llama2_70b", "h100_256", 1024, 80.0, 60.0),
    ("gpt3_175b", "a100_1024", 1536, 80.0, 60.0),
)
"""Model, cluster, samples of an iteration, GiB of each GPU, and the CPU seconds that a search may take."""

PLAN_METHODS = (
    ("bert_huge_32", "galvatron_titan_8", 64, 8.0),
    ("bert_huge_48", "galvatron_titan_8", 64, 12.0),
    ("vit_huge_32", "galvatron_titan_8", 256, 8.0),
    ("t5_large_48", "galvatron_titan_8", 64, 16.0),
    ("swin_huge_48", "galvatron_titan_8", 128, 12.0),
    ("bert_huge_48", "galvatron_a100_16", 128, 8.0),
    ("bert_xhuge", "galvatron_a100_64", 128, 16.0),
)
"""Model, cluster, samples of an iteration, GiB of each GPU."""


def plan_search() -> Iterator[BenchmarkCase]:
    """Yield searches for the best plan: more layers, GPUs, memory, and layers that differ."""
    for model, cluster, batch, memory_gib, cpu_s in PLAN_SEARCHES:
        measure = partial(whole_search, model, cluster, batch, memory_gib, cpu_s=cpu_s)
        name = f"{model}, {cluster}, batch {batch}, {memory_gib:g} GiB"
        yield BenchmarkCase(name, f"{cpu_s:g} CPU s", measure, (model, memory_gib) == ("llama2_7b", 80.0))
    for layers in (64, 128):
        model, cluster = "t5_large_48", "galvatron_titan_16"
        measure = partial(whole_search, model, cluster, 256, 16.0, cpu_s=10.0, num_layers=layers)
        yield BenchmarkCase(f"{model} of {layers} layers, {cluster}, batch 256, 16 GiB", "10 CPU s", measure)


def plan_methods() -> Iterator[BenchmarkCase]:
    """Yield the exact search beside Galvatron-BMW's algorithms."""
    for model, cluster, batch, memory_gib in PLAN_METHODS:
        measure = partial(beside_others, model, cluster, batch, memory_gib)
        name = f"{model}, {cluster}, batch {batch}, {memory_gib:g} GiB"
        yield BenchmarkCase(name, "exact never worse", measure, is_quick=model == "bert_huge_32")


BENCHMARK = Benchmark(
    "planners",
    "Measure what planners must reach.",
    {
        "pipedream": pipedream,
        "pipedream_speed": pipedream_speed,
        "unbalanced": unbalanced,
        "imbalance": imbalances,
        "plan_search": plan_search,
        "plan_methods": plan_methods,
    },
    load_solvers,
)
