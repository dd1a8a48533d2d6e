import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements.files import read_json, to_json, write_json, write_text

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
