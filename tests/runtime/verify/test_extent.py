"""How much of a run is compared: as asked for, or by size of the model; a run that goes on has no first."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import SMALL_GPT, launched

from placements import Placement
from placements.shapes import m_shape, v_shape
from runtime.codegen.codegen import generate
from runtime.models import ModelOptions
from runtime.program.lower import lower
from runtime.verify.comparison import VERIFIED_MIB, extent_of, parameter_mib
from schedsearch.baselines import gpipe, one_f_one_b

SMALL = ModelOptions.from_dict(SMALL_GPT)
LARGE = ModelOptions.from_dict(SMALL_GPT | {"hidden_size": 1024, "dtype": "float32"})


def test_the_size_decides_if_nobody_does() -> None:
    layers = 2 * (12 * 1024 * 1024 + 13 * 1024)
    tables = 2 * 256 * 1024 + 6 * 1024 + 2 * 1024
    assert parameter_mib(LARGE, v_shape(2)) == pytest.approx((layers + tables) * 4 / 2**20, rel=1e-3)
    assert extent_of(None, SMALL, v_shape(2), False).verify == "first"
    assert extent_of(None, LARGE, v_shape(2), False).verify == "none"
    assert f"more than {VERIFIED_MIB} MiB" in extent_of(None, LARGE, v_shape(2), False).reason
    assert extent_of("all", LARGE, v_shape(2), True) == ("all", "as asked for")
    for asked in (None, "first"):
        assert extent_of(asked, SMALL, v_shape(2), True).verify == "none"


def test_only_what_is_compared_is_written_and_exact(tmp_path: Path) -> None:
    generate(lower(one_f_one_b(v_shape(2), 3)), {}, SMALL_GPT, tmp_path)
    runs = {
        verify: launched(tmp_path, 2, 3, launcher="fork", verify=verify)
        for verify in ("none", "first", "all")
    }
    lengths = {verify: len(run.to_dict()["reference_losses"]) for verify, run in runs.items()}
    assert lengths == {"none": 0, "first": 1, "all": 3}
    assert {verify: run.exact for verify, run in runs.items()} == {"none": False, "first": True, "all": True}
    assert all(run.comparison.bitwise_equal for run in runs.values() if run.comparison)
    for run in runs.values():
        assert run.losses[0] == runs["all"].losses[0]
        pairs = zip(run.peak_rss_mib, run.rss_after_import_mib, strict=True)
        assert all(peak >= before > 10 for peak, before in pairs)
    inexact = launched(tmp_path, 2, 1, launcher="in_process", verify="first", exact=False)
    assert inexact.comparison.tolerance == pytest.approx(1.49e-8, rel=1e-2)
    assert not inexact.exact


def in_two_groups() -> Placement:
    """Return a V-shape whose first stage is two groups of two GPUs, and its second two of one."""
    shape = v_shape(2)
    blocks = tuple(replace(block, data_parallel=2) for block in shape.blocks)
    return replace(shape, num_gpus=(4, 2), blocks=blocks)


@pytest.mark.parametrize(
    ("placement", "dtype"), [(m_shape(2), "float64"), (in_two_groups(), "float32")], ids=["m", "v in groups"]
)
def test_sums_of_the_library_are_near_those_in_order(
    placement: Placement, dtype: str, tmp_path: Path
) -> None:
    """Shards, copies and the norm, over gloo; the ordered have the bits of a replay."""
    options = SMALL_GPT | {"dtype": dtype, "clip_grad_norm": 0.5}
    generate(lower(gpipe(placement, 2)), {}, options, tmp_path)
    count = lower(gpipe(placement, 2)).placement.num_devices
    runs = {
        exact: launched(tmp_path, count, 2, launcher="fork", verify="all", exact=exact)
        for exact in (True, False)
    }
    for exact, run in runs.items():
        assert run.exact == exact
    ordered, by_library = (run.comparison for run in runs.values())
    assert ordered.bitwise_equal
    assert by_library.is_equal, "within half of the digits"
    assert ordered.tolerance < by_library.tolerance
