"""Tables fit the terminal: columns that do not are left out and named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from experiments.frontier import savings


def test_columns_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("envpipe", "zeus_global", "zeus_per_stage", "all_maximum", "perseus")
    tuned: Any = SimpleNamespace(baselines=dict.fromkeys(names), costs=SimpleNamespace(placeholder=False))
    row = (1.0, 10.0, 5.0, 0.5, *(0.25,) * 6)
    monkeypatch.setattr(savings, "savings_rows", lambda _: [row])
    for columns, missing in (("80", ["perseus"]), ("70", ["all_maximum", "perseus"]), ("120", [])):
        monkeypatch.setenv("COLUMNS", columns)
        _, _, head, cells, *rest = savings.describe_savings(tuned)
        shown = [name for name in ("slowdown", "at_most", "frontier", *names) if name not in missing]
        assert head.split() == shown and len(cells.split()) == len(shown)
        assert max(map(len, (head, cells))) <= int(columns)
        assert rest == ([f"no room here for {', '.join(missing)}; see savings.csv"] if missing else [])
