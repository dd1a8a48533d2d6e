from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements.files import read_json, to_json, write_json, write_text
from placements.plain_data import Field, in_file

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


PLAIN = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30))
def test_json_reads_back(data: object) -> None:
    assert json.loads(to_json(data)) == data


def test_short_things_stay_on_one_line() -> None:
    text = to_json({"blocks": [["F0", 0, 0]] * 40, "clock": list(range(60))})
    assert text.count('["F0", 0, 0]') == 40
    assert max(map(len, text.splitlines())) < 260


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_text(tmp_path / "a.json", "old")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.json", "\ud800")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "old")]


def test_a_field_that_is_given_twice_is_named(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.json", '{"x": 1, "y": 2, "x": 3}')
    with pytest.raises(ValueError, match="a.json: is not JSON .x is given twice.; give a file"):
        read_json(path, "a file", ValueError)
