"""Items of Perseus: from made-up and from the authors' profiles, what is claimed of them, and wrong files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from places import SHARED_DATA

from experiments.config.options import OptionError
from experiments.reproduce.catalogue import ITEMS
from experiments.reproduce.item import Claim, DataOptions, Item, Row
from experiments.reproduce.perseus.savings import ENERGY, ENVPIPE_FILE, OURS, SAVING, envpipe_energy_j
from experiments.reproduce.perseus.workloads import (
    EMULATED,
    EXPERIMENTS,
    Costed,
    costed,
    data_folder,
)
from placements.profiles.operating_point import ProfileError

DATA = SHARED_DATA / "perseus"
BY_NAME = {name.removeprefix("perseus_"): ITEMS[name] for name in ITEMS if name.startswith("perseus")}

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")


def rows_of(item: Item, data: Path | None = None, only: Sequence[str] | None = None) -> list[Row]:
    options = item.small if only is None else replace(item.small, only=tuple(only))
    if data is not None:
        options = replace(options, data=str(data))
    return list(item.rows(options))


@pytest.mark.parametrize("name", ["table7", "table3"])
def test_without_data_layers_are_modelled(name: str) -> None:
    item = BY_NAME[name]
    rows = rows_of(item)
    assert rows and not [row for row in rows if not item.is_as_claimed(row)]
    assert all(trend.holds for trend in item.trends(rows))
    if item.options is DataOptions:
        assert not [row for row in rows if row.note in ("measured", "regressed")]
        assert all(item.claim_of(row) is Claim.TREND for row in rows if row.published is not None)


@needs_data
@pytest.mark.parametrize(("name", "number"), [("table3", 4), ("table4", 2)])
def test_measured_workloads_save_what_is_published(name: str, number: int) -> None:
    measured = [case for case, workload in EXPERIMENTS.items() if workload.profile][:number]
    rows = rows_of(BY_NAME[name], DATA, measured)
    compared = [row for row in rows if BY_NAME[name].claim_of(row) is Claim.WITHIN and row.metric == SAVING]
    assert len(compared) == {"table3": 8, "table4": 24}[name]
    assert all(BY_NAME[name].is_as_claimed(row) for row in compared)
    others = [trend.conclusion for trend in BY_NAME[name].trends(rows) if not trend.holds]
    assert all("emulated savings" in text for text in others) and len(others) == (name == "table3")


@needs_data
def test_the_measured_micro_batches_are_of_six_samples() -> None:
    """With six a modelled GPT-3 has the time and the energy of the measured profile, and with one a sixth."""
    for workload in (EMULATED["a100_gpt3_175b"], EMULATED["a40_gpt3_175b"]):
        measured = _shortest(costed(workload, DATA))
        six = costed(workload._replace(micro_batch_size=6), None)
        assert _shortest(six) == pytest.approx(measured, rel=0.03)
        sixth = [total / 6 for total in measured]
        assert _shortest(costed(workload, None)) == pytest.approx(sixth, rel=0.03)


def _shortest(costs: Costed) -> list[float]:
    """Return the time and the energy of all blocks at their highest clocks."""
    points = [min(block, key=lambda point: point.time_ms) for block in costs.profile.points.values()]
    return [sum(point.time_ms for point in points), sum(point.energy_mj for point in points)]


@needs_data
def test_the_emulation_saves_no_less_than_published_and_envpipe_is_the_authors() -> None:
    for gpu in ("a100", "a40"):
        rows = rows_of(BY_NAME["table6"], DATA, [f"{gpu}_gpt3_175b_12"])
        assert all(BY_NAME["table6"].is_as_claimed(row) for row in rows)
        (ours,) = (row for row in rows if row.series == OURS)
        assert ours.ours is not None and ours.published is not None and ours.ours > ours.published
        (energy,) = (row for row in rows if row.metric == ENERGY)
        assert energy.ours == pytest.approx(energy.published, rel=2e-3 if gpu == "a40" else 1e-5)


def test_wrong_folders_and_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^data: /nowhere has no profile such as rebuilt/"):
        data_folder("/nowhere")
    with pytest.raises(OptionError, match=r"^data: .* has no profile such as rebuilt/"):
        data_folder(str(tmp_path))
    workload = EMULATED["a100_gpt3_175b"]
    profile = tmp_path / workload.profile
    profile.parent.mkdir()
    profile.write_text("stage,instruction\n")
    assert data_folder(str(tmp_path)) == tmp_path
    with pytest.raises(ProfileError, match=r"^[^\n]*gpt3-175b[^\n]*$"):
        costed(workload, tmp_path)
    path = tmp_path / ENVPIPE_FILE
    path.parent.mkdir()
    assert envpipe_energy_j(tmp_path, workload, 12) is None
    head = "model,device,num_microbatches,energy\n"
    path.write_text(f"{head}gpt3-175b,a100_sxm,12,-1\n")
    with pytest.raises(OptionError, match=f"^{path}: line 2, column energy: '-1' is not a number above 0"):
        envpipe_energy_j(tmp_path, workload, 12)
    shutil.rmtree(path.parent)
