"""A simulated NVML driver, and one thread for torch, as the devices have: results depend on it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fake_driver import FakeDriver
from places import ROOT

SOURCE = Path(__file__).parent / "clocks" / "fake_nvml.c"


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated driver, compiled under the name by which pynvml looks for the real one."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    pytest.importorskip("pynvml")
    library = tmp_path_factory.mktemp("driver") / "libnvidia-ml.so.1"
    options = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{library.name}"]
    subprocess.run([compiler, *options, "-o", str(library), str(SOURCE), "-lm"], check=True)
    return library


@pytest.fixture
def driver(driver_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Simulated GPUs, which pynvml finds in this process and in its children."""
    import pynvml

    state = tmp_path / "gpus"
    monkeypatch.setenv("FAKE_NVML_FILE", str(state))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver_library.parent))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the GPUs of other tests have the same names
    fake = FakeDriver(driver_library, state)
    monkeypatch.setattr(pynvml, "nvmlLib", fake.shared_object)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return fake


@pytest.fixture(scope="session")
def compiler() -> None:
    """Let torch import here, once, its modules for the first optimizer and for checkpoints."""
    import runtime.checkpoints.saving  # noqa: F401

    torch.optim.AdamW([torch.zeros(1, requires_grad=True)]).step()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute with one thread during a test."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
