"""The simulated driver of ``runtime/fake_nvml.c``, as tests see it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path

from placements import OperatingPoint
from runtime.clocks.clock import ClockBackend, RecordingClock
from runtime.clocks.nvml import NvmlGpu
from runtime.profiling.profiler import Meter
from runtime.virtual.virtual_gpu import VirtualGpu


class FakeDriver:
    """GPUs in a file, which pynvml of this and of other processes shows as if they were real."""

    def __init__(self, library: Path, state: Path) -> None:
        self.shared_object = ctypes.CDLL(str(library))
        for name in ("now_ms", "energy_mj", "until_change_ms"):
            getattr(self.shared_object, f"fake_nvml_{name}").restype = ctypes.c_double
        self._state = state
        self.setup()

    def setup(
        self,
        num_gpus: int = 2,
        clocks_mhz: range = range(345, 1980 + 1, 15),
        latency_ms: float = 0.0,
        counter_period_ms: float = 0.0,
        blocking_w: float = 60.0,
    ) -> None:
        """Begin anew, at time 0 and the highest clock."""
        numbers = [ctypes.c_double(value) for value in (latency_ms, counter_period_ms, blocking_w)]
        done = self.shared_object.fake_nvml_setup(
            str(self._state).encode(), num_gpus, clocks_mhz[0], clocks_mhz[-1], clocks_mhz.step, *numbers
        )
        assert done == 0

    def deny(self) -> None:
        """Refuse to lock and unlock clocks from now on."""
        self.shared_object.fake_nvml_deny(1)

    def slow(self, below_mhz: int, extra_ms: float) -> None:
        """Let changes to clocks below one take longer."""
        self.shared_object.fake_nvml_slow(below_mhz, ctypes.c_double(extra_ms))

    def run_in_real_time(self) -> None:
        """Run the GPUs' time by this machine's clock from now on."""
        self.shared_object.fake_nvml_real_time()

    def lose(self, gpu: int) -> None:
        """Refuse every request for a GPU's clock from now on: it is lost."""
        self.shared_object.fake_nvml_lose(gpu)

    def divide(self) -> None:
        """Divide the GPUs (MIG); a part of the first one has the UUID ``MIG-fake``."""
        self.shared_object.fake_nvml_divide()

    def lines(self) -> list[str]:
        """Return the locks and resets so far, in order."""
        texts = []
        for index in range(self.shared_object.fake_nvml_num_calls()):
            call = (ctypes.c_uint * 3)()
            self.shared_object.fake_nvml_call(index, call)
            gpu, low, high = call
            texts.append(f"{gpu} lock {low} {high}" if low else f"{gpu} reset")
        return texts

    def wait_for(self, line: str, count: int = 1) -> None:
        """Return as soon as a line is there so often."""
        self.wait_until(lambda: self.lines().count(line) >= count, line)

    def wait_until(self, condition: object, what: str) -> None:
        assert callable(condition)
        deadline = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < deadline, f"{what!r} never came: {self.lines()}"
            time.sleep(0.001)


class DirectClock(RecordingClock):
    """Locks the clock of a GPU in this process, without a controller."""

    def __init__(self, index: int = 0) -> None:
        super().__init__()
        self._gpu = NvmlGpu(str(index))

    def set(self, clock_mhz: int) -> None:
        super().set(clock_mhz)
        self._gpu.lock(clock_mhz)


class FakeGpu(VirtualGpu, Meter):
    """A `VirtualGpu` and a `Meter` of profiles whose clocks and energy go through NVML."""

    def __init__(self, driver: FakeDriver, index: int, clock: ClockBackend) -> None:
        self._driver, self._shared_object = driver, driver.shared_object
        self._index, self._clock = index, clock
        self._nvml = NvmlGpu(str(index))

    def set(self, clock_mhz: int) -> None:
        """Ask through NVML, and let no virtual time pass before the driver has heard of it."""
        self._clock.set(clock_mhz)
        self.wait_for_lock(clock_mhz)

    def reset(self) -> None:
        """Give the clock back."""
        self._clock.reset()

    def wait_for_lock(self, clock_mhz: int) -> None:
        """Return as soon as the driver has heard of a clock."""
        self._driver.wait_until(
            lambda: self._shared_object.fake_nvml_locked_mhz(self._index) == clock_mhz, f"{clock_mhz} MHz"
        )

    def energy_mj(self) -> float:
        return self._nvml.energy_mj()

    def now_ms(self) -> float:
        return float(self._shared_object.fake_nvml_now_ms(self._index))

    def until_change_ms(self) -> float:
        return float(self._shared_object.fake_nvml_until_change_ms(self._index))

    def wait(self, ms: float) -> None:
        self._shared_object.fake_nvml_wait(self._index, ctypes.c_double(ms))

    def align(self) -> None:
        """Wait until the energy counter has just moved."""
        before_mj = self.energy_mj()
        while self.energy_mj() == before_mj:
            self.wait(0.02)

    def settle(self) -> None:
        """Wait until the clock that was asked for is in force."""
        if (ms := self.until_change_ms()) < float("inf"):
            self.wait(ms)

    def work(self, points: Sequence[OperatingPoint]) -> None:
        count = len(points)
        self._shared_object.fake_nvml_work(
            self._index,
            count,
            (ctypes.c_uint * count)(*(point.clock_mhz for point in points)),
            (ctypes.c_double * count)(*(point.time_ms for point in points)),
            (ctypes.c_double * count)(*(point.energy_mj for point in points)),
        )

    def cycles(self, millions: float) -> None:
        """Compute, at the driver's own power model: 75 + 425 (clock / highest)^3 W."""
        self._shared_object.fake_nvml_cycles(self._index, ctypes.c_double(millions))
