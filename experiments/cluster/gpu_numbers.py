"""The cluster of the options: numbers by GPU type, as ``36:36:36`` or by name."""

from __future__ import annotations

import math
from collections.abc import Mapping

from experiments.cluster.options import GpuClusterOptions
from experiments.config.options import OptionError, require
from schedsearch.cluster.gpu_cluster import GpuCluster

TYPES = ("v100", "p100", "k80")
"""What numbers with colons between stand for: Gavel's types, in its order."""


def gpu_cluster(options: GpuClusterOptions) -> GpuCluster:
    """Return the cluster.

    Prices with colons between are of Gavel's types; those that the cluster has not are left out.

    Raises:
        OptionError: A number is none.
        ClusterError: A number is out of its range, or of a type that the cluster has not.
    """
    whole = _whole("cluster.workers", options.workers, "36:36:36")
    prices = _by_type("cluster.dollars_per_hour", options.dollars_per_hour, "0.74:0.43:0.135")
    sizes = _whole("cluster.gpus_per_server", options.gpus_per_server, "4:4:8")
    if isinstance(options.dollars_per_hour, str):
        prices = {gpu_type: price for gpu_type, price in prices.items() if gpu_type in whole}
    idle_w = _by_type("cluster.idle_power_w", options.idle_power_w, "40:30:25")
    cap_w = math.inf if options.power_cap_w is None else options.power_cap_w
    return GpuCluster(whole, prices, sizes, power_cap_w=cap_w, idle_power_w=idle_w)


def _whole(where: str, given: str | Mapping[str, float] | None, example: str) -> dict[str, int]:
    found = _by_type(where, given, example)
    for gpu_type, count in found.items():
        require(count == int(count), f"{where}.{gpu_type}", count, "a whole number", "give one")
    return {gpu_type: int(count) for gpu_type, count in found.items()}


def _by_type(where: str, given: str | Mapping[str, float] | None, example: str) -> Mapping[str, float]:
    if given is None:
        return {}
    if not isinstance(given, str):
        return given
    parts = given.split(":")
    try:
        return dict(zip(TYPES, map(float, parts), strict=True))
    except ValueError:
        form = f"numbers of {':'.join(TYPES)}; write {example}, or types by name as in {{v100: 8, k80: 4}}"
        raise OptionError(f"{where}: {given!r} is not {form}") from None
