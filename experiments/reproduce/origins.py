"""Where the data come from that items need and the project does not contain, and what to download."""

from __future__ import annotations

from experiments.reproduce.item import Item

ORIGINS = {
    "gavel": "download scheduler/simulation_throughputs.json, scheduler/physical_cluster_throughputs.json "
    "and scheduler/traces of https://github.com/stanford-futuredata/gavel at c4fa4009, and list the types "
    "of scheduler/job_table.py in job_types.csv",
    "perseus": "download the profiles and results of https://github.com/ml-energy/zeus, branch kronos at "
    "38cb3f90 (docs/commands/reproduce.md, Perseus's savings)",
    "pipedream": "download the profiles of https://github.com/msr-fiddle/pipedream at 7db6a1c3, "
    "profiler/*/profiles/*/graph.txt, and write the nodes of each into a CSV",
    "spot_prices": "download logs and notebooks of https://github.com/stanford-futuredata/training_on_a_dime "
    "at 85f65957, and write them as CSV (docs/commands/prices.md)",
    "vocabulary_parallelism": "download artifact/exp_one_host.csv of "
    "https://github.com/sail-sg/VocabularyParallelism at 6191c3bf, and write its rows as "
    "measured_iterations.csv (docs/files.md)",
    "zero_bubble": "download megatron/core/pipeline_parallel/efficiency.py of "
    "https://github.com/sail-sg/zero-bubble-pipeline-parallelism, branch arxiv at f68d3879, and write its "
    "tuples as measured_times.csv (docs/files.md)",
}
"""Origins of the data, by the first folder of a path in them."""


def origins_of(item: Item) -> str:
    """Return in one line what to download for an item; empty where it needs nothing."""
    places = [*item.inputs.values(), *item.optional_inputs.values()]
    return "; ".join(dict.fromkeys(ORIGINS[place.split("/")[0]] for place in places))
