"""The loop of one's own that docs show: its job in one command, then four processes that train."""

from __future__ import annotations

import contextlib
import os
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from joined import join
from places import ROOT
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

EXAMPLE = ROOT / "examples" / "own_loop.py"
JOB = ["placement=v_shape", "runtime.model=given", "runtime.launcher=none", "search.num_micro_batches=8"]


def in_one_piece() -> list[float]:
    """Train the example's model without a pipeline; return the loss of each epoch's last batch."""
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(16, 4))
    images = torch.randn(512, 16)
    dataset = TensorDataset(images, (images @ torch.randn(16, 4)).argmax(1))
    shuffled = torch.Generator()
    shuffled.manual_seed(0)
    batches = DataLoader(dataset, batch_size=64, shuffle=True, generator=shuffled)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=40)
    losses = []
    for _ in range(5):
        for inputs, targets in batches:
            loss = cross_entropy(model(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def test_the_example_trains_to_the_losses_of_the_unpipelined_model(
    ran: Callable[..., Any], tmp_path: Path
) -> None:
    done = ran("run", *JOB, is_quick=False)
    assert (tmp_path / "out/scripts/device_3.py").is_file()
    for name in ("measurement.json", "frontier.json", "savings.csv"):
        assert not (tmp_path / "out" / name).exists(), "nothing was run, and no energy asked for"
    assert "orders: " not in done.stdout + done.stderr
    (tmp_path / "job").symlink_to(tmp_path / "out")

    def train(rank: int) -> str:
        os.chdir(tmp_path)
        with Path(f"printed_{rank}.txt").open("w") as file, contextlib.redirect_stdout(file):
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        return Path(f"printed_{rank}.txt").read_text()

    expected = in_one_piece()
    *others, printed = join(4, train, tmp_path)
    assert others == ["", "", ""]
    losses = [float(text) for text in re.findall(r"^epoch \d: loss (.*)$", printed, re.MULTILINE)]
    assert losses == pytest.approx(expected, abs=1e-3)
    assert losses[-1] < losses[0] / 2, "it learns"


def test_the_page_shows_the_example_as_it_is() -> None:
    """And the command that writes its job, which the README has too."""
    readme, text = ((ROOT / page).read_text("utf-8") for page in ("README.md", "docs/concepts/own_loop.md"))
    code = EXAMPLE.read_text(encoding="utf-8").partition('"""\n\n')[2]
    assert f"```python\n{code}```" in text
    line = f"schedsearch run {' '.join(JOB)} hydra.run.dir=job"
    assert line in text and line in readme


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (
            ["runtime.launcher=fork"],
            "runtime.model: given has no modules to run here; use runtime.launcher=none",
        ),
        (
            ["runtime.receive_memory=100"],
            "runtime.receive_memory: the sizes of the messages of the model 'given'",
        ),
    ],
    ids=str,
)
def test_what_needs_the_modules_is_refused(
    overrides: list[str], reason: str, refused: Callable[..., str]
) -> None:
    assert reason in refused("run", *JOB, *overrides)
