"""The modelled power of a placement whose devices are GPUs of several kinds.

The module does not know who planned it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

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
    whole = sum(map(Counter, gpus), Counter[Gpu]())
    if len(whole) == 1:
        return modelled_profile(placement, next(iter(whole)))
    points = {}
    for block in placement.blocks:
        own = sum((Counter(gpus[device]) for device in block.devices), Counter[Gpu]())
        more_w = _mean_blocking_w(whole) - _mean_blocking_w(own)
        points[block.name] = tuple(_points(own, block.time * placement.tick_ms, more_w))
    return Profile(" and ".join(gpu.name for gpu in whole), points, _mean_blocking_w(whole))


def _mean_blocking_w(gpus: Counter[Gpu]) -> float:
    return sum(count * gpu.blocking_power_w for gpu, count in gpus.items()) / gpus.total()


def _points(gpus: Counter[Gpu], time_ms: float, more_w: float) -> Iterator[OperatingPoint]:
    """Yield the clocks of the slowest kind, with the mean energy of all GPUs and of more power."""
    of_kind = {gpu: gpu.operating_points(time_ms) for gpu in gpus}
    slowest = min(gpus, key=lambda gpu: gpu.peak_tflops)
    for point in of_kind[slowest]:
        energy_mj = gpus[slowest] * point.energy_mj
        for gpu, count in gpus.items():
            if gpu is not slowest:
                energy_mj += count * min(
                    each.energy_mj for each in of_kind[gpu] if each.time_ms <= point.time_ms
                )
        energy_mj = energy_mj / gpus.total() + more_w * point.time_ms
        yield OperatingPoint(point.clock_mhz, point.time_ms, energy_mj)
