"""A cluster as its scheduler sees it: the number of GPUs of each type, their prices and servers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from placements.forms.meaning import Meaning


class ClusterError(ValueError):
    """A cluster, a job or a request is wrong; the message is one line with the remedy."""


def require(is_right: bool, where: str, value: object, wanted: str) -> None:
    """Check a value that a user gave.

    Raises:
        ClusterError: It is not.
    """
    if not is_right:
        raise ClusterError(f"{where}: {value!r} is not {wanted}")


@dataclass(frozen=True)
class GpuCluster:
    """GPUs of several types.

    Raises:
        ClusterError: A number is out of its range, or a type has a price, servers or power but no GPUs.
    """

    workers: Annotated[Mapping[str, int], Meaning("number of GPUs by type")]
    dollars_per_hour: Annotated[Mapping[str, float], Meaning("price of a GPU by type")] = field(
        default_factory=dict
    )
    gpus_per_server: Annotated[Mapping[str, int], Meaning("GPUs in a server by type; 1 if not given")] = (
        field(default_factory=dict)
    )
    power_cap_w: Annotated[float, Meaning("limit on the mean power of all GPUs", "W")] = math.inf
    idle_power_w: Annotated[
        Mapping[str, float],
        Meaning("power of a GPU without a job, by type; 0 if not given", "W"),
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not self.workers:
            raise ClusterError("cluster.workers is empty; give GPUs of at least one type, as v100: 36")
        minima = {"workers": 0, "dollars_per_hour": 0, "gpus_per_server": 1, "idle_power_w": 0}
        for name, least in minima.items():
            for gpu_type, value in getattr(self, name).items():
                wanted = f"a GPU type of the cluster; it has {', '.join(self.workers)}"
                require(gpu_type in self.workers, f"cluster.{name}", gpu_type, wanted)
                is_count = isinstance(value, int) and not isinstance(value, bool)
                is_right = least <= value < math.inf and (is_count or name != "workers")
                noun = "a number of GPUs" if name == "workers" else "in range"
                require(is_right, f"cluster.{name}.{gpu_type}", value, f"{noun}; give {least} or more")
        require(self.power_cap_w > 0, "cluster.power_cap_w", self.power_cap_w, "above 0; give watts")
        wanted = f"above the power of idle GPUs, {self.all_idle_w:.6g} W; give more"
        require(self.all_idle_w < self.power_cap_w, "cluster.power_cap_w", self.power_cap_w, wanted)

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Return the types, in order."""
        return tuple(self.workers)

    @property
    def num_gpus(self) -> int:
        """Return the number of GPUs of all types."""
        return sum(self.workers.values())

    @property
    def all_idle_w(self) -> float:
        """Return the power of all GPUs while idle, in W."""
        return float(sum(watts * self.workers[gpu_type] for gpu_type, watts in self.idle_power_w.items()))

    def price_of(self, gpu_type: str) -> float:
        """Return the price of one GPU in dollars per hour; 0 if the cluster names no price."""
        return self.dollars_per_hour.get(gpu_type, 0.0)

    def server_of(self, gpu_type: str) -> int:
        """Return the number of GPUs of a type in one server."""
        return self.gpus_per_server.get(gpu_type, 1)

    def placements(self, gpu_type: str, gpus: int) -> tuple[bool, ...]:
        """Return, for each possible placement of a job, whether it is unconsolidated; empty if too few GPUs.

        A job is unconsolidated if its GPUs are in more servers than needed, or each in one of its own.
        """
        workers, size = self.workers.get(gpu_type, 0), self.server_of(gpu_type)
        if workers < gpus:
            return ()
        can_be_apart = gpus > 1 and math.ceil(workers / size) > math.ceil(gpus / size)
        return (gpus > 1,) if size == 1 else (False, True) if can_be_apart else (False,)

    def is_unconsolidated(self, gpu_type: str, gpu_ids: tuple[int, ...]) -> bool:
        """Return whether a job's GPUs are in more servers than they need, or each in a server of its own."""
        size, gpus = self.server_of(gpu_type), len(gpu_ids)
        return gpus > 1 and (size == 1 or len({gpu // size for gpu in gpu_ids}) > math.ceil(gpus / size))
