"""The modelled power of a placement whose devices are GPUs of several kinds.

The module does not know who planned it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from placements import Placement, Profile
from placements.hardware import Gpu, modelled_profile
from placements.profiles.operating_point import OperatingPoint


def mixed_profile(placement: Placement, gpus: Sequence[Mapping[Gpu, int]]) -> Profile:
    """Return the profile of a placement on GPUs of several kinds, from their models.

    A profile has one blocking power. It is the mean of all GPUs here, and each block's energy has the
    difference to the mean of its own GPUs, over its time. So the energy of an iteration is that of each GPU
    computing by its own model and waiting at its own power.

    A block whose GPUs are of several kinds has the clocks of the slowest of them, by its half-precision
    products. The others then run at their own clock of least energy that takes no longer.

    Args:
        placement: Its block times are those at the highest clocks.
        gpus: GPUs of each device: how many of each kind.
    """
    whole = _total(gpus)
    if len(whole) == 1:
        return modelled_profile(placement, next(iter(whole)))
    blocking_w = _mean_blocking_w(whole)
    points = {}
    for block in placement.blocks:
        own = _total([gpus[device] for device in block.devices])
        difference_w = blocking_w - _mean_blocking_w(own)
        points[block.name] = tuple(
            OperatingPoint(each.clock_mhz, each.time_ms, each.energy_mj + difference_w * each.time_ms)
            for each in _shared_points(own, block.time * placement.tick_ms)
        )
    return Profile(" and ".join(gpu.name for gpu in whole), points, blocking_w)


def _total(gpus: Sequence[Mapping[Gpu, int]]) -> Counter[Gpu]:
    whole: Counter[Gpu] = Counter()
    for each in gpus:
        whole.update(each)
    return whole


def _mean_blocking_w(gpus: Counter[Gpu]) -> float:
    return sum(count * gpu.blocking_power_w for gpu, count in gpus.items()) / gpus.total()


def _shared_points(gpus: Counter[Gpu], time_ms: float) -> list[OperatingPoint]:
    """Return the clocks of the slowest kind, with the mean energy of all GPUs."""
    slowest = min(gpus, key=lambda gpu: gpu.peak_tflops)
    of_kind = {gpu: gpu.operating_points(time_ms) for gpu in gpus}
    shared = []
    for point in of_kind[slowest]:
        energy_mj = gpus[slowest] * point.energy_mj
        for gpu, count in gpus.items():
            if gpu is not slowest:
                fast = (each.energy_mj for each in of_kind[gpu] if each.time_ms <= point.time_ms)
                energy_mj += count * min(fast)
        shared.append(OperatingPoint(point.clock_mhz, point.time_ms, energy_mj / gpus.total()))
    return shared
