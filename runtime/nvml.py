"""A GPU as NVML, the NVIDIA driver's own library, shows it: clocks, energy, power.

The one module that imports pynvml (the package nvidia-ml-py); the driver's errors become lines that say what
to do. It does not know who asks for which clock, or when.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

GRANT = (
    "run as root, or grant CAP_SYS_ADMIN (docker: --cap-add=SYS_ADMIN; "
    "systemd: AmbientCapabilities=CAP_SYS_ADMIN)"
)
"""What a user does who may not lock clocks."""


class NvmlError(RuntimeError):
    """The driver is missing, has no such GPU, or refuses; the message says why and what to do."""


class NvmlGpu:
    """A GPU of this machine.

    Args:
        gpu: NVML's index or UUID.

    Raises:
        NvmlError: There is no driver or no such GPU; in methods also: the driver refuses.
    """

    def __init__(self, gpu: str) -> None:
        """Find the GPU."""
        self._gpu = gpu
        self._nvml = _nvml()
        with self._errors_in_words():
            self._handle = self._found()

    @property
    def name(self) -> str:
        """Return what its vendor calls it."""
        with self._errors_in_words():
            name = self._nvml.nvmlDeviceGetName(self._handle)
        return name.decode() if isinstance(name, bytes) else str(name)

    def lock(self, clock_mhz: int) -> None:
        """Ask the driver for a clock, or the supported one next to it, from soon on."""
        with self._errors_in_words():
            self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle, clock_mhz, clock_mhz)

    def unlock(self) -> None:
        """Give the choice of the clock back to the driver; needs the same right as locking."""
        with self._errors_in_words():
            self._nvml.nvmlDeviceResetGpuLockedClocks(self._handle)

    def clocks_mhz(self) -> list[int]:
        """Return the clocks that it supports at its highest memory clock, ascending."""
        with self._errors_in_words():
            memory_mhz = max(self._nvml.nvmlDeviceGetSupportedMemoryClocks(self._handle))
            return sorted(self._nvml.nvmlDeviceGetSupportedGraphicsClocks(self._handle, memory_mhz))

    def clock_mhz(self) -> int:
        """Return the clock at which it runs now."""
        with self._errors_in_words():
            return int(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))

    def energy_mj(self) -> float:
        """Return the energy it has used since the driver was loaded; it moves on about every 10 ms."""
        with self._errors_in_words():
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))

    def power_w(self) -> float:
        """Return its power, averaged over what time the GPU's sensor does."""
        with self._errors_in_words():
            return float(self._nvml.nvmlDeviceGetPowerUsage(self._handle)) / 1000

    def _found(self) -> Any:
        if self._gpu.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(self._gpu))
        uuid = self._gpu if self._gpu.startswith("GPU-") else f"GPU-{self._gpu}"
        return self._nvml.nvmlDeviceGetHandleByUUID(uuid)

    @contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) == self._nvml.NVML_ERROR_NO_PERMISSION:
                raise NvmlError(f"no right to lock the clock of GPU {self._gpu}; {GRANT}") from None
            raise NvmlError(f"NVML refuses what was asked of GPU {self._gpu} ({error})") from None


def num_gpus() -> int:
    """Return how many GPUs this machine has.

    Raises:
        NvmlError: There is no driver.
    """
    return int(_nvml().nvmlDeviceGetCount())


def _nvml() -> Any:
    """Return NVML, initialized."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        raise NvmlError("the package nvidia-ml-py is not installed; run: pip install nvidia-ml-py") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NvmlError(f"NVML does not start ({error}); is the NVIDIA driver installed?") from None
    return nvml
