from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, NamedTuple

import pytest

from placements import Kind
from placements.forms.meaning import Meaning
from placements.forms.reading import Field, in_file

DATA = {"name": "", "count": True, "share": float("nan"), "rows": [1, {"size": 2.5}], "other": "x" * 99}


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda top: top["none"], "top: lacks the field 'none'; add it"),
        (lambda top: top.only(("name",)), "top: has an unknown field 'count'; the fields are name"),
        (
            lambda top: top["rows"].only(("a", "b")),
            "rows: [1, {'size': 2.5}] is not a mapping of a, b; give one",
        ),
        (lambda top: top.get("version", 3).mapping(), "version: 3 is not a mapping; give one"),
        (lambda top: top.version(2), "schema_version: None is not known; write 2"),
        (lambda top: top["name"].items(), "name: '' is not a list; give one"),
        (
            lambda top: top["name"].text("a path", "give one of a file"),
            "name: '' is not a path; give one of a file",
        ),
        (lambda top: top["name"].choice(("a", "b")), "name: '' is not known; use one of a, b"),
        (lambda top: top["count"].number(), "count: True is not a number; give one"),
        (lambda top: top["share"].number(), "share: nan is not a number; give one"),
        (lambda top: top["rows"].items()[0].number(min=2), "rows[0]: 1 is not a number; give one"),
        (
            lambda top: top["rows"].items()[1]["size"].whole(),
            "rows[1].size: 2.5 is not a whole number; give one",
        ),
        (lambda top: top["other"].whole(), f"other: '{'x' * 59}... is not a whole number; give one"),
    ],
)
def test_what_is_wrong_is_one_line_with_place_value_and_remedy(
    read: Callable[[Field], object], message: str
) -> None:
    with pytest.raises(ValueError) as caught, in_file("a.json", ValueError):
        read(Field(DATA, "top", ValueError, is_root=True))
    assert str(caught.value) == f"a.json: {message}"


def test_an_open_field_may_have_others_at_any_depth() -> None:
    """Measured files say more than is read of them; a typing error is found in all others."""
    data = {"inner": {"size": 1, "note": "x"}, "note": "y"}
    top = Field(data, "", ValueError)
    assert replace(top, is_open=True)["inner"].only(("size",))["size"].value == 1
    with pytest.raises(ValueError, match="inner: has an unknown field 'note'"):
        top["inner"].only(("size",))


class Size(NamedTuple):
    width: Annotated[int, Meaning("width", min=1)]
    height: float


class Entry(NamedTuple):
    status: Annotated[Kind, Meaning("kind", key="kind")]
    size: Size
    held: Annotated[int | Mapping[int, int], Meaning("held", "MiB")] = 0


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"kind": "F", "size": [2.0, 3]}, Entry(Kind.F, Size(2, 3))),
        (
            {"kind": "B", "size": {"width": 1, "height": 0.5}, "held": "1GiB"},
            Entry(Kind.B, Size(1, 0.5), 1024),
        ),
        ({"kind": "B", "size": [1, 1], "held": {"0": 1, 1: 2}}, Entry(Kind.B, Size(1, 1), {0: 1, 1: 2})),
        ({"kind": "X", "size": [1, 1]}, "kind: 'X' is not known; use one of F, B, I, W, R, O"),
        ({"kind": "F", "size": [1]}, "size: [1] is not [width, height]; give 2 entries"),
        ({"kind": "F", "size": [1.5, 1]}, "size[0]: 1.5 is not a whole number of 1 or more; give one"),
        ({"kind": "F", "size": [1, 1], "held": {0: 1, "0": 2}}, "held: 0 is given twice; give it once"),
    ],
)
def test_a_record_is_read_as_its_fields_are_declared(data: object, expected: Entry | str) -> None:
    field = Field(data, "", ValueError)
    if isinstance(expected, str):
        with pytest.raises(ValueError) as caught:
            field.typed(Entry)
        assert str(caught.value) == expected
    else:
        assert field.typed(Entry) == expected
