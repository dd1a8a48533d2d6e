"""Tables of model sizes, counted from the layers of the zoo: Tessel's Table III, Galvatron-BMW's Table I.

The published values are in ``model_sizes.csv``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from experiments.reproduce.item import CaseOptions, Row, described
from experiments.reproduce.rows import published_table
from placements.models.zoo import read_model


class PublishedSize(NamedTuple):
    """A model by its name in the zoo; parameters in 1e9 or 1e6, MB of a sample's activations in 32 bits."""

    paper: str
    model: str
    parameters: float
    activations_mb: float = 0.0


def published_sizes(paper: str) -> Mapping[str, PublishedSize]:
    """Return a paper's models by their names."""
    rows = published_table(__file__, "model_sizes.csv", PublishedSize)
    return {row.model: row for row in rows if row.paper == paper}


def _tessel_rows(_: CaseOptions, size: PublishedSize) -> Iterator[Row]:
    digits = 0 if size.parameters == int(size.parameters) else 1
    ours = read_model(size.model).num_parameters / 1e9
    yield Row("parameters", "parameters_1e9", ours, size.parameters, digits)


def _galvatron_rows(_: CaseOptions, size: PublishedSize) -> Iterator[Row]:
    model = read_model(size.model, precision="single")
    yield Row("parameters", "parameters_1e6", model.num_parameters / 1e6, size.parameters, 0)
    yield Row("activations of a sample", "activations_mib", model.kept_bytes / 2**20, size.activations_mb, 2)


ITEMS = (
    described("tessel_table3", published_sizes("Tessel"), _tessel_rows),
    described(
        "galvatron_table1",
        published_sizes("Galvatron-BMW"),
        _galvatron_rows,
        small=CaseOptions(("bert_huge_32", "gpt3_15b")),
    ),
)
