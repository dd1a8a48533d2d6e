"""Jobs for tests of a user's own loop: samples, a job with given modules, and cuts of a model."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from placements import Placement
from runtime.codegen.codegen import generate
from runtime.program.deadlock import check
from runtime.program.lower import lower
from schedsearch.baselines import gpipe, one_f_one_b

NUM_MICRO_BATCHES = 4
SAMPLES = TensorDataset(
    torch.randn(24, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    torch.randint(3, (24,), generator=torch.Generator().manual_seed(1)),
)
AT = {2: ["6"], 4: ["3", "6", "9"]}
"""Where a model of ten layers is cut, for so many blocks."""


def job(placement: Placement, folder: Path) -> Path:
    """Write the job of a placement whose modules are given."""
    make = one_f_one_b if placement.name == "v_shape" else gpipe
    generate(check(lower(make(placement, NUM_MICRO_BATCHES))), {}, {"name": "given"}, folder)
    return folder
