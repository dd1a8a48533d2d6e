"""Table I: parameters and activations of the models of Galvatron-BMW, counted from their layers."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.reproduce.item import CaseOptions, Claim, Item, Row
from placements.models.zoo import read_model

TABLE_I = {
    "bert_huge_32": (672, 3149.39),
    "bert_huge_48": (987, 4657.51),
    "bert_xhuge": (10200, 24210.05),
    "vit_huge_32": (632, 646.5),
    "vit_huge_48": (947, 968.59),
    "vit_xhuge": (10100, 5313.9),
    "t5_large_32": (502, 4119.66),
    "t5_large_48": (737, 6107.75),
    "t5_512_4_32": (502, 1777.06),
    "t5_512_4_48": (737, 2473.10),
    "swin_huge_32": (701, 726.59),
    "swin_huge_48": (1016, 1016.8),
    "gpt3_15b": (15400, 32889.04),
    "gpt3_39b": (39100, 58645.34),
    "gpt3_65b": (64900, 97557.98),
}
"""Parameters, 1e6, and MB of activations of a sample in 32 bits, by the model's name in the zoo."""


def _rows(_: CaseOptions, name: str) -> Iterator[Row]:
    parameters, megabytes = TABLE_I[name]
    model = read_model(name, precision="single")
    yield Row("parameters", "parameters_1e6", model.num_parameters / 1e6, parameters, 0)
    yield Row("activations of a sample", "activations_mib", model.kept_bytes / 2**20, megabytes, 2)


MODEL_SIZES = Item(
    "galvatron_table1",
    "Galvatron-BMW",
    "Table I",
    "parameters and activations of the models",
    Claim.WITHIN,
    tuple(TABLE_I),
    _rows,
    small=CaseOptions(("bert_huge_32", "gpt3_15b")),
    tolerance=0.1,
    because=(
        "the zoo counts what each layer keeps, and the table measured it. Both rows of T5-512/4 leave some "
        "385 MB besides their layers, which the shape does not have"
    ),
    supported_by="test_sizes_are_those_of_galvatrons_table_1",
)
"""The models of all other tables."""
