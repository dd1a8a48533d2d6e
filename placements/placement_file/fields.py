"""Numbers, names and memory of a placement's file, refused in one line where they are wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from placements.block import PlacementError
from placements.plain_data import Field, in_mib

LARGEST = 1e15
"""Largest number in a file: sums of many stay exact in 64 bits."""


def read_capacity(
    value: object,
    where: str,
    num_devices: int,
    rounded: Callable[[float], int] = math.floor,
    *,
    unit_mib: float | None = None,
) -> tuple[int, ...] | None:
    """Return whole units per device from one number, a list, or None for no limit.

    Args:
        value: Value of a file or an option.
        where: Its name in messages.
        num_devices: How many are needed.
        rounded: What makes a fraction whole: down for what there is, up for what is taken.
        unit_mib: MiB of a unit, for values such as ``24GiB``; None where only the user knows it.

    Raises:
        PlacementError: It is none of these, or the list has the wrong length.
    """
    field = in_units(Field(value, where, PlacementError), unit_mib)

    def read(each: Field) -> int:
        if (given := not_negative(each)) and not rounded(given):
            remedy = "and blocks hold whole units; give 1 or more, or all memory in a smaller unit"
            raise PlacementError(f"{each.where}: {given:g} is less than 1, {remedy}")
        return rounded(given)

    return None if value is None else _by_device(field, num_devices, read)


def read_num_gpus(value: object, where: str, num_devices: int) -> tuple[int, ...]:
    """Return the GPUs that each device stands for, from one number, a list, or None for one each.

    Args:
        value: Value of a file or an option.
        where: Its name in messages.
        num_devices: How many are needed.

    Raises:
        PlacementError: It is none of these, or the list has the wrong length.
    """
    if value is None:
        return ()
    remedy = "give a whole number of 1 or more"
    field = Field(value, where, PlacementError)
    return _by_device(field, num_devices, lambda each: each.whole("a number of GPUs", remedy, 1))


def read_nodes(value: object, where: str) -> tuple[int, ...] | None:
    """Return the node of each GPU, from a list, or None for one node.

    Args:
        value: Value of a file or an option.
        where: Its name in messages.

    Raises:
        PlacementError: It is neither; that the numbers fit the devices is the placement's rule.
    """
    if value is None:
        return None
    listed = Field(value, where, PlacementError).items("a list of nodes", "give the node of each GPU")
    return tuple(each.whole("a node's number", "give a whole number from 0 on", 0) for each in listed)


def _by_device(field: Field, num_devices: int, read: Callable[[Field], int]) -> tuple[int, ...]:
    """Return what is read for each device, from one value for all or a list."""
    if not isinstance(field.value, (list, tuple)):
        return (read(field),) * num_devices
    if len(field.value) != num_devices:
        raise PlacementError(
            f"{field.where}: has {len(field.value)} entries for {num_devices} devices; give one for each, or "
            "one number"
        )
    return tuple(read(each) for each in field.items())


def in_units(field: Field, unit_mib: float | None) -> Field:
    """Return memory in units, also where it is given with a unit of its own, as 24GiB.

    Raises:
        PlacementError: It has one, but how much a unit is nobody said.
    """
    if isinstance(field.value, list):
        return replace(field, value=[in_units(each, unit_mib).value for each in field.items()])
    if isinstance(field.value, dict):
        inside = {key: in_units(field.inside(key, each), unit_mib).value for key, each in field.value.items()}
        return replace(field, value=inside)
    mib = in_mib(field.value)
    if mib is field.value:
        return field
    if unit_mib is None:
        raise PlacementError(
            f"{field.where}: {field.value!r} has a unit, but the memory of the blocks has none; give a "
            "number in what they hold, or 'memory_unit_mib' in a placement file"
        )
    assert isinstance(mib, float)
    return replace(field, value=mib / unit_mib)


def optional(field: Field, name: str, default: object) -> Field:
    """Return a field of a mapping; the default also where it is null."""
    found = field.get(name)
    return replace(found, value=default) if found.value is None else found


def entries_of(field: Field) -> list[Field]:
    """Return the entries of a list."""
    return field.items(remedy="give one in brackets")


def name_of(field: Field) -> str:
    """Return the text that names something."""
    return field.text("a name", "put text there, in quotes if it looks like a number")


def number_of(field: Field) -> float:
    """Return a number that is not so large that sums of many are no longer exact."""
    number = field.number()
    if abs(number) > LARGEST:
        raise PlacementError(f"{field.where}: is larger than {LARGEST:g}; use a coarser unit")
    return number


def integer_of(field: Field) -> int:
    """Return a whole number, also where it is written with a point, as 2.0."""
    number = number_of(field)
    if number != int(number):
        raise field.wrong("a whole number", "use a finer unit")
    return int(number)


def fraction_of(field: Field) -> Fraction:
    """Return a number as exactly what the file says, in decimals."""
    return Fraction(str(number_of(field)))


def positive_time(field: Field) -> Fraction:
    """Return a time above 0, before it becomes ticks: a message repeats it as it was written."""
    if (time := fraction_of(field)) <= 0:
        raise field.wrong("a time above 0")
    return time


def not_negative(field: Field) -> float:
    """Return a number of 0 or more, before it is made whole, for the same reason."""
    if (number := number_of(field)) < 0:
        raise PlacementError(f"{field.where}: {field.value} is negative; give 0 or more")
    return number
