"""All items by name, and where their data come from.

A new item is named in `experiments.reproduce.options`, and in its module's ``ITEMS``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from experiments.config.declaring import Option, own_options
from experiments.reproduce.item import Item
from experiments.reproduce.options import ALL, MODULE_OF, ReproduceAllOptions


class _Items(Mapping[str, Item]):
    """The items, each loaded with its module when it is asked for."""

    def __getitem__(self, name: str) -> Item:
        items: tuple[Item, ...] = importlib.import_module(f"experiments.reproduce.{MODULE_OF[name]}").ITEMS
        return next(item for item in items if item.name == name)

    def __iter__(self) -> Iterator[str]:
        return iter(MODULE_OF)

    def __len__(self) -> int:
        return len(MODULE_OF)


ITEMS: Mapping[str, Item] = _Items()
"""In the order in which ``experiment=all`` makes them."""


def options_of_item(name: str) -> tuple[Option, ...]:
    """Return the options of an item, or of all together."""
    return own_options(ReproduceAllOptions if name == ALL else ITEMS[name].options)


ORIGINS = {
    "": "",
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
"""Origins of the data, by `Item.data`."""


def origin_of(item: Item) -> str:
    """Return in one line the downloads that an item needs; empty where it needs none."""
    return ORIGINS[item.data]
