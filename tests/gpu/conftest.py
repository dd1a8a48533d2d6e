"""Fixtures of the GPU tests; with ``--gpu-on-cpu`` they run on the CPU, as far as they can."""

from __future__ import annotations

import os
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from runtime.clocks.gpu_clock import gpu_uuid
from runtime.clocks.nvml import NvmlError, NvmlGpu

GUARD = Path(__file__).parent / "guard"

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
"""So that a product has the same bits each time; read at the first one."""


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """Where a test computes: ``cuda``, or with ``--gpu-on-cpu`` ``cpu``."""
    if request.config.getoption("--gpu-on-cpu"):
        return "cpu"
    if not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} finds no GPU here, or pytest was not asked for -m gpu")
    return "cuda"


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of all changes of the GPU that a test and its processes asked for, each refused."""
    log = tmp_path / "refused.txt"
    log.touch()
    monkeypatch.setenv("SCHEDSEARCH_REFUSED", str(log))
    inherited = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(GUARD), inherited])))
    runpy.run_path(str(GUARD / "sitecustomize.py"))["refuse"](monkeypatch.setattr)
    return log


@pytest.fixture(autouse=True)
def exact(device: str, refused: Path) -> Iterator[None]:
    """Compute with one thread and operators that give the same bits each time, and change no clock."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(device == "cuda")
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


@pytest.fixture
def nvml_gpu(device: str) -> NvmlGpu:
    """The GPU as its driver shows it."""
    try:
        return NvmlGpu(gpu_uuid(torch.device("cuda", 0)) if device == "cuda" else "0")
    except NvmlError as error:
        pytest.skip(str(error))


@pytest.fixture
def metered_gpu(nvml_gpu: NvmlGpu) -> NvmlGpu:
    """The GPU, if it has an energy counter."""
    try:
        nvml_gpu.energy_mj()
    except NvmlError as error:
        pytest.skip(f"no energy counter: {error}")
    return nvml_gpu
