"""A GPU as NVML, the NVIDIA driver's own library, shows it: clocks and energy.

The one module that imports pynvml (the package nvidia-ml-py); the driver's errors become lines that say what
to do. It does not know who asks for which clock, or when.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

GRANT = (
    "run as root, or grant CAP_SYS_ADMIN (docker: --cap-add=SYS_ADMIN; "
    "systemd: AmbientCapabilities=CAP_SYS_ADMIN)"
)
"""Remedy for a user who may not lock clocks."""


class NvmlError(RuntimeError):
    """The driver or the GPU is missing, or the driver refuses; the message gives the reason and a remedy."""


class NvmlGpu:
    """A whole GPU of this machine, by NVML's index or UUID; CUDA's own, without a prefix, will do.

    Raises:
        NvmlError: There is no driver or no such GPU, or it is divided (MIG); in methods also: the driver
            refuses.
    """

    def __init__(self, gpu: str) -> None:
        self._gpu, self._nvml = gpu, _nvml()
        self._handle = self._found()
        with suppress(AttributeError, self._nvml.NVMLError):  # of a kind that cannot be divided
            if self._nvml.nvmlDeviceGetMigMode(self._handle)[0]:
                raise _divided(gpu)

    @property
    def name(self) -> str:
        """Return its vendor's name for it."""
        return _text(self._ask("read the name", "nvmlDeviceGetName"))

    @property
    def uuid(self) -> str:
        """Return its unique name, as NVML writes it."""
        return _text(self._ask("read the UUID", "nvmlDeviceGetUUID"))

    def lock(self, clock_mhz: int) -> None:
        """Ask the driver for a clock, or the supported one next to it, from soon on."""
        self._ask("control the clock", "nvmlDeviceSetGpuLockedClocks", clock_mhz, clock_mhz)

    def unlock(self) -> None:
        """Let the driver choose the clock again; needs the same permission as locking."""
        self._ask("control the clock", "nvmlDeviceResetGpuLockedClocks")

    def clocks_mhz(self) -> list[int]:
        """Return the clocks that it supports at its highest memory clock, ascending."""
        memory_mhz = max(self._ask("list the clocks", "nvmlDeviceGetSupportedMemoryClocks"))
        return sorted(self._ask("list the clocks", "nvmlDeviceGetSupportedGraphicsClocks", memory_mhz))

    def clock_mhz(self) -> int:
        """Return the clock at which it runs now."""
        return int(self._ask("read the clock", "nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM))

    def energy_mj(self) -> float:
        """Return the energy it has used since the driver was loaded; it moves on about every 10 ms."""
        return float(self._ask("read the energy", "nvmlDeviceGetTotalEnergyConsumption"))

    def _found(self) -> Any:
        """Return NVML's handle of the GPU, also for a UUID without its prefix."""
        nvml, gpu = self._nvml, self._gpu
        try:
            if gpu.isdigit():
                return nvml.nvmlDeviceGetHandleByIndex(int(gpu))
            if gpu.startswith("MIG-"):
                raise _divided(gpu)
            return nvml.nvmlDeviceGetHandleByUUID(gpu if gpu.startswith("GPU-") else f"GPU-{gpu}")
        except nvml.NVMLError as error:
            if not gpu.isdigit() and not gpu.startswith("GPU-"):
                with suppress(nvml.NVMLError):
                    nvml.nvmlDeviceGetHandleByUUID(f"MIG-{gpu}")
                    raise _divided(gpu) from None
            raise NvmlError(f"NVML finds no GPU {gpu} ({error}); nvidia-smi -L lists them") from None

    def _ask(self, what: str, function: str, *arguments: int) -> Any:
        """Return the answer of one of NVML's functions of a GPU."""
        nvml = self._nvml
        try:
            return getattr(nvml, function)(self._handle, *arguments)
        except AttributeError as error:
            raise NvmlError(f"pynvml cannot {what} ({error}); run: pip install -U nvidia-ml-py") from None
        except nvml.NVMLError as error:
            if getattr(error, "value", None) == nvml.NVML_ERROR_NO_PERMISSION:
                raise NvmlError(f"no right to {what} of GPU {self._gpu}; {GRANT}") from None
            raise NvmlError(f"NVML refuses to {what} of GPU {self._gpu} ({error})") from None


def num_gpus() -> int:
    """Return the number of GPUs of this machine; an `NvmlError` without a driver."""
    nvml = _nvml()
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        raise NvmlError(f"NVML does not count the GPUs ({error})") from None


def _divided(gpu: str) -> NvmlError:
    return NvmlError(
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
