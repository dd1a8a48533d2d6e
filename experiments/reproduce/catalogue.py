"""All items by name.

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
