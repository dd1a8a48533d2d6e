"""Mappings in which a field may have one of several names; those that are not known are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from placements.plain_data import Field
from schedsearch.cluster.gpu_cluster import ClusterError


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like one that is not known; "" where none is."""
    return next(iter(get_close_matches(name, [*known], n=1, cutoff=0.0)), "")


def fields_of(data: Field, known: Mapping[str, Sequence[str]]) -> dict[str, Field]:
    """Return the fields of a mapping by the names that we use.

    Args:
        data: The mapping.
        known: Our name of each field, and the other names that it may have.

    Raises:
        ClusterError: It is no mapping, a field is not known, or two names of one field are there.
    """
    ours = {other: name for name, others in known.items() for other in (name, *others)}
    found: dict[str, Field] = {}
    for written in data.mapping(f"a mapping of {', '.join(known)}"):
        if written not in ours:
            raise ClusterError(
                f"{data.where + ': ' if data.where else ''}has an unknown field {written!r}; "
                f"write {nearest(written, ours)!r}, or remove it; known are {', '.join(known)}"
            )
        name = ours[written]
        if name in found:
            raise ClusterError(f"{data[written].where}: is there as {found[name].where} too; keep one")
        found[name] = data[written]
    return found
