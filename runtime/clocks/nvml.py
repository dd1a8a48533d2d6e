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
    """A whole GPU of this machine.

    Args:
        gpu: NVML's index or UUID; CUDA's own, without a prefix, will do.

    Raises:
        NvmlError: There is no driver or no such GPU, or it is divided (MIG); in methods also: the driver
            refuses.
    """

    def __init__(self, gpu: str) -> None:
        """Find the GPU."""
        self._gpu = gpu
        self._nvml = _nvml()
        self._handle = self._found()
        if self._is_divided():
            raise NvmlError(_divided(gpu))

    @property
    def name(self) -> str:
        """Return what its vendor calls it."""
        with self._errors_in_words("read the name"):
            return _text(self._nvml.nvmlDeviceGetName(self._handle))

    @property
    def uuid(self) -> str:
        """Return the name by which no other GPU goes, as NVML writes it."""
        with self._errors_in_words("read the UUID"):
            return _text(self._nvml.nvmlDeviceGetUUID(self._handle))

    @property
    def index(self) -> int:
        """Return its number among the GPUs of the machine."""
        with self._errors_in_words("read the index"):
            return int(self._nvml.nvmlDeviceGetIndex(self._handle))

    def lock(self, clock_mhz: int) -> None:
        """Ask the driver for a clock, or the supported one next to it, from soon on."""
        with self._errors_in_words("control the clock"):
            self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle, clock_mhz, clock_mhz)

    def unlock(self) -> None:
        """Give the choice of the clock back to the driver; needs the same right as locking."""
        with self._errors_in_words("control the clock"):
            self._nvml.nvmlDeviceResetGpuLockedClocks(self._handle)

    def clocks_mhz(self) -> list[int]:
        """Return the clocks that it supports at its highest memory clock, ascending."""
        with self._errors_in_words("list the clocks"):
            memory_mhz = max(self._nvml.nvmlDeviceGetSupportedMemoryClocks(self._handle))
            return sorted(self._nvml.nvmlDeviceGetSupportedGraphicsClocks(self._handle, memory_mhz))

    def clock_mhz(self) -> int:
        """Return the clock at which it runs now."""
        with self._errors_in_words("read the clock"):
            return int(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))

    def energy_mj(self) -> float:
        """Return the energy it has used since the driver was loaded; it moves on about every 10 ms."""
        with self._errors_in_words("read the energy"):
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))

    def power_w(self) -> float:
        """Return its power, averaged over what time the GPU's sensor does."""
        with self._errors_in_words("read the power"):
            return float(self._nvml.nvmlDeviceGetPowerUsage(self._handle)) / 1000

    def _found(self) -> Any:
        nvml, gpu = self._nvml, self._gpu
        try:
            if gpu.isdigit():
                return nvml.nvmlDeviceGetHandleByIndex(int(gpu))
            if gpu.startswith("MIG-"):
                raise NvmlError(_divided(gpu))
            return nvml.nvmlDeviceGetHandleByUUID(gpu if gpu.startswith("GPU-") else f"GPU-{gpu}")
        except nvml.NVMLError as error:
            if self._is_slice():
                raise NvmlError(_divided(gpu)) from None
            raise NvmlError(f"NVML finds no GPU {gpu} ({error}); nvidia-smi -L lists them") from None

    def _is_slice(self) -> bool:
        """Return whether the name, without a prefix, is that of a part of a GPU."""
        if self._gpu.isdigit() or self._gpu.startswith("GPU-"):
            return False
        try:
            self._nvml.nvmlDeviceGetHandleByUUID(f"MIG-{self._gpu}")
        except self._nvml.NVMLError:
            return False
        return True

    def _is_divided(self) -> bool:
        """Return whether the GPU is divided now; one of a kind that cannot be is not."""
        try:
            current, _ = self._nvml.nvmlDeviceGetMigMode(self._handle)
        except (AttributeError, self._nvml.NVMLError):
            return False
        return bool(current)

    @contextmanager
    def _errors_in_words(self, what: str) -> Iterator[None]:
        nvml = self._nvml
        try:
            yield
        except AttributeError as error:
            raise NvmlError(f"pynvml cannot {what} ({error}); run: pip install -U nvidia-ml-py") from None
        except nvml.NVMLError as error:
            if getattr(error, "value", None) == nvml.NVML_ERROR_NO_PERMISSION:
                raise NvmlError(f"no right to {what} of GPU {self._gpu}; {GRANT}") from None
            raise NvmlError(f"NVML refuses to {what} of GPU {self._gpu} ({error})") from None


def num_gpus() -> int:
    """Return how many GPUs this machine has.

    Raises:
        NvmlError: There is no driver, or it does not tell.
    """
    nvml = _nvml()
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        raise NvmlError(f"NVML does not count the GPUs ({error})") from None


def _divided(gpu: str) -> str:
    return (
        f"GPU {gpu} is divided (MIG); its parts have one clock and one energy counter in common, so neither "
        "is used; use a whole GPU"
    )


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


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
