"""YAML as its version 1.2 has it, JSON, and files that are whole or absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements.forms.texts import read_json, read_yaml, to_json, to_yaml, write_json, write_text


def read(tmp_path: Path, text: str) -> Any:
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    return read_yaml(tmp_path / "a.yaml", ValueError)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[010, 08, 0o10, 0x1F, -7]", [10, 8, 8, 31, -7]),
        ("[1e3, 5e-05, .5, 2., -.inf, !!float 3]", [1000.0, 5e-05, 0.5, 2.0, -float("inf"), 3.0]),
        ("[1:30, yes, Off, 2020-04-01]", ["1:30", "yes", "Off", "2020-04-01"]),
        ("[true, False, null, ~, !!str 010]", [True, False, None, None, "010"]),
        ("a: &x {b: 1}\nc:\n  <<: *x\n  d: 2\n", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ('\ufeff{\n\t"a":\t5e-05,\n\t"b": "\\u00fc\\/"\n}', {"a": 5e-05, "b": "ü/"}),
        ("{\n  a: 5e-05, # as YAML\n}", {"a": 5e-05}),
    ],
)
def test_scalars_are_of_yaml_1_2(tmp_path: Path, text: str, expected: object) -> None:
    assert read(tmp_path, text) == expected


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    texts = ["010", "0o10", "1e3", "1:30", "yes", "2020-04-01", "5e-05", "~", "true", "", "=", "<<"]
    data = {"texts": texts, "others": [1e-7, 5e-05, 1e300, 10, True, None]}
    assert read(tmp_path, to_yaml(data)) == data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: !x y", "could not determine a constructor for the tag '!x', line 2"),
        ("a: !!int 1.5", "'1.5' is not of the type int, line 1"),
        ("a: !!map x", "expected a mapping node, but found scalar, line 1"),
        ("010: 1\n10: 2", "'10' is given twice, line 2"),
        ('{"a": 1,\n"a": 2}', "'a' is given twice, line 2"),
        ("a: 1\n\tb: 2", "found a tab character that violates indentation, line 2"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        read(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'a.yaml'}: is not YAML ({message}); correct it there"


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
