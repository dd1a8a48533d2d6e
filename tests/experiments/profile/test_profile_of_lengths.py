"""A table of times by length, and the rules that are fitted to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import refusal

from placements.profiles.length_rules import read_length_rules, value

OPTIONS = ["placement=v_shape", "placement.num_devices=2"]


def test_a_table_of_any_profiler_is_fitted_and_searched(ran, tmp_path: Path) -> None:
    table = tmp_path / "measured.csv"
    lines = [
        f"gpu 0,{tokens},{name},{scale * (1 + tokens / 1000 + (tokens / 1000) ** 2)}"
        for tokens in (1000, 2000, 4000)
        for name, scale in (("F0", 1), ("B0", 2), ("F1", 1), ("B1", 2))
    ]
    table.write_text("\n".join(["device,tokens,block,time_ms", *lines]) + "\n")
    done = ran("profile", *OPTIONS, f"profiling.length_table={table}")
    assert "  B1: 2 + 2 x + 2 x^2 ms; worst 0.0%, at" in done.stdout
    rules = tmp_path / "rules.csv"
    (tmp_path / "out" / "length_rules.csv").rename(rules)
    assert value(read_length_rules(rules)["F0"].time_ms, 3) == pytest.approx(13)
    (tmp_path / "out" / "result.json").unlink(missing_ok=True)
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("micro_batch,tokens\n0,3000\n1,1000\n")
    given = [f"search.micro_batches={lengths}", f"search.length_rules={rules}", "search.work_limit=1"]
    done = ran("search", *OPTIONS, *given)
    # 13 and 3 ms forward, twice that backward: the short one first, and its B0 before that of the long one
    assert "makespan    81 ms" in done.stdout


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["runtime.sequence_lengths=[8,16,8]"], "runtime.sequence_lengths: (8, 16, 8) is not for one"),
        (["profiling.length_table=none.csv"], "none.csv: cannot be read"),
    ],
)
def test_wrong_lengths_are_refused(overrides: list[str], message: str, tmp_path: Path) -> None:
    assert message in refusal("profile", [*OPTIONS, *overrides], tmp_path / "out")
