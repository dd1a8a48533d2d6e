"""A figure of the dissertation as an item: what all of them have alike."""

from __future__ import annotations

from typing import Any

from experiments.reproduce.item import Item

SOURCE = "Narayanan's dissertation"


def figure(number: str, title: str, *parts: Any, **others: Any) -> Item:
    """Return the item of a figure.

    Args:
        number: As ``4.6``.
        title: What it shows.
        parts: Of `Item`, from its claim on.
        others: Further fields of `Item`, by name.
    """
    name = f"dissertation_figure{number.replace('.', '_')}"
    return Item(name, SOURCE, f"Fig. {number}", title, *parts, **others)
