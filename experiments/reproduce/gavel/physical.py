"""The two traces of the cluster that Gavel ran on, simulated again (Table 5.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.reproduce.gavel.options import SeedOptions, file_of, seeded
from experiments.reproduce.gavel.study import JCT, FactorSpread, metric_of
from experiments.reproduce.item import Row, Trend, described
from experiments.reproduce.rows import numbers, rows_with
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.inputs.throughput_file import read_throughputs
from schedsearch.cluster.inputs.trace_file import read_trace
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.simulation import simulate_cluster

CLUSTER = GpuCluster({"v100": 8, "p100": 16, "k80": 24})

THROUGHPUTS = "physical_cluster_throughputs.json"
"""File in the folder of Gavel's data."""

TRACES = {
    "continuous": ("traces/physical/max_min_fairness.trace", JCT),
    "static": ("traces/physical/minimize_makespan.trace", "makespan_h"),
}
"""Of each case: the trace in that folder, and what is measured."""

PUBLISHED = {
    "continuous": {"las": 3.7, "las_agnostic": 5.4},
    "static": {"makespan": 17.6, "gandiva": 22.1},
}
"""Hours in the dissertation's own simulation; its heterogeneity-aware policy comes first."""

MEASURED = {
    "continuous": "3.4 and 5.1 h on the real cluster",
    "static": "17.7 and 21.3 h on the real cluster",
}


def _cases(options: SeedOptions) -> dict[str, tuple[str, int]]:
    for name in (THROUGHPUTS, *(trace for trace, _ in TRACES.values())):
        file_of(options, name)
    return seeded(options, tuple(TRACES))


def _rows(options: SeedOptions, case: tuple[str, int]) -> Iterator[Row]:
    workload, seed = case
    trace, metric = TRACES[workload]
    throughputs = read_throughputs(file_of(options, THROUGHPUTS))
    jobs = read_trace(file_of(options, trace), throughputs).jobs
    found, note = {}, MEASURED[workload]
    for name, published in PUBLISHED[workload].items():
        simulation = SimulationOptions(seed=seed, skips_to_arrivals=True)
        policy = policy_of(name, seed=seed) if name == "gandiva" else policy_of(name)
        found[name] = metric_of(simulate_cluster(jobs, CLUSTER, throughputs, policy, simulation), metric)
        yield Row(name, metric, found[name], published, digits=1, note=note, series=workload)
    (aware, best), (other, most) = found.items()
    hours, others = PUBLISHED[workload].values()
    label = f"{other} / {aware}"
    yield Row(label, f"{metric}_factor", most / best, others / hours, digits=2, series=workload)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    for workload, (_, metric) in TRACES.items():
        factors = numbers(rows_with(rows, series=workload, metric=f"{metric}_factor"))
        if factors:
            spread, (aware, other) = FactorSpread.of(factors), PUBLISHED[workload]
            yield Trend(f"{metric} of {other} is above that of {aware}", min(factors) > 1, f"{spread} times")


PHYSICAL_ITEM = described(
    "gavel_physical",
    _cases,
    _rows,
    conclude=_trends,
    small=SeedOptions(seeds=(0,)),
)

ITEMS = (PHYSICAL_ITEM,)
