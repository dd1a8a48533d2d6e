"""Orders found from device to device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from schedsearch.modulo.oracle import Oracle
from schedsearch.modulo.state import SearchState
from schedsearch.modulo.strategies.strategy import Strategy
from schedsearch.starts.first_repetends import Start

if TYPE_CHECKING:  # as it loads numba, which is slow
    from schedsearch.modulo.device_by_device.device_beam import DeviceBeams


@dataclass
class DeviceByDevice(Strategy):
    """Finds the orders from device to device, by beam search, where devices are a line or a ring.

    With few blocks a solver is as quick; with many, what follows rarely finds anything better.
    """

    name: ClassVar[str] = "device_by_device"
    share_of_few: float = 0.3
    share_of_many: float = 0.85
    min_blocks: int = 32
    _beams: DeviceBeams | None = field(default=None, init=False, repr=False)

    def run(self, state: SearchState, oracle: Oracle, until: float) -> Iterator[Start]:
        """Yield ever shorter repetends."""
        from schedsearch.modulo.device_by_device.device_beam import DeviceBeams

        sizes = range(1, state.max_size + 1) if len(state.sizes) > 1 else state.sizes
        self._beams = self._beams or DeviceBeams(state.placement, sizes, state.seed)
        for repetend in self._beams.shorter(state.period_bound, state.rate, oracle.effort, until):
            yield Start(repetend, "orders found from device to device")
