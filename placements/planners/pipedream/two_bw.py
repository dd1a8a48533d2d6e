"""PipeDream-2BW's planner: every number of replicas and stages, micro-batch size, and recomputation or not.

The model is equal blocks, as many in each stage, and every stage has the same number of replicas. Costs are
the closed forms of Narayanan's dissertation (Sec. 3.3.3), read as its text means them where they are printed
otherwise: throughput counts all replicas, and gradients are accumulated over what a batch leaves. The module
does not know in what order micro-batches run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from placements.planners.hybrid.plan import PlanError

RECOMPUTE_FACTOR = 4 / 3
"""Compute time with recomputation over that without, where a backward takes as long as two forwards."""

_MIB = 2**20


@dataclass(frozen=True)
class BlockProfile:
    """A model of equal blocks, such as a transformer's layers.

    Attributes:
        num_blocks: Number of blocks, at least 1.
        forward_ms: Time of one block's forward, by micro-batch size; above 0.
        backward_ms: Likewise, for the same sizes.
        parameter_bytes: Parameter bytes of one block.
        activation_bytes: What one block keeps of one sample until its backward.
        input_bytes: Bytes of one sample between two blocks.

    Raises:
        PlanError: A figure is out of its range.
    """

    num_blocks: int
    forward_ms: Mapping[int, float]
    backward_ms: Mapping[int, float]
    parameter_bytes: float
    activation_bytes: float
    input_bytes: float

    def __post_init__(self) -> None:
        """Check every figure."""
        _check_count("num_blocks", self.num_blocks)
        if not self.forward_ms or set(self.forward_ms) != set(self.backward_ms):
            raise PlanError(
                f"backward_ms: has the micro-batch sizes {sorted(self.backward_ms)}, but forward_ms "
                f"{sorted(self.forward_ms)}; give both for the same sizes, at least one"
            )
        for name in ("forward_ms", "backward_ms"):
            for size, time_ms in getattr(self, name).items():
                _check_count(f"{name}: micro-batch size", size)
                _check_positive(f"{name}[{size}]", time_ms)
        for name in ("parameter_bytes", "activation_bytes", "input_bytes"):
            if not 0 <= getattr(self, name) < math.inf:
                raise PlanError(f"{name}: {getattr(self, name)!r} is not a number of 0 or more; give bytes")


@dataclass(frozen=True)
class EqualServers:
    """Equal servers of equal GPUs.

    Attributes:
        num_gpus: GPUs of all servers together.
        gpus_per_server: GPUs of a server, at least 1.
        in_server_gb_per_s: Bandwidth between GPUs of a server, in 1e9 bytes each second.
        between_servers_gb_per_s: Bandwidth between GPUs of two servers, likewise.
        memory_mib: Memory of each GPU.

    Raises:
        PlanError: A figure is out of its range.
    """

    num_gpus: int
    gpus_per_server: int
    in_server_gb_per_s: float
    between_servers_gb_per_s: float
    memory_mib: float

    def __post_init__(self) -> None:
        """Check every figure."""
        for name in ("num_gpus", "gpus_per_server"):
            _check_count(name, getattr(self, name))
        for name in ("in_server_gb_per_s", "between_servers_gb_per_s", "memory_mib"):
            _check_positive(name, getattr(self, name))

    def across_pipelines_ms(self, num_bytes: float, data_parallel: int) -> float:
        """Return the time of bytes between replicas: in a server where there are fewer than it has GPUs."""
        return self._ms(num_bytes, data_parallel < self.gpus_per_server)

    def in_pipeline_ms(self, num_bytes: float, data_parallel: int, num_stages: int) -> float:
        """Return the time of bytes between stages: in a server where all pipelines fit into one.

        The dissertation leaves this to the reader. Replicas of a stage are beside each other (Fig. 3.4), so
        that pipelines which do not all fit into a server leave it.
        """
        return self._ms(num_bytes, data_parallel * num_stages <= self.gpus_per_server)

    def _ms(self, num_bytes: float, is_in_server: bool) -> float:
        rate = self.in_server_gb_per_s if is_in_server else self.between_servers_gb_per_s
        return num_bytes / (rate * 1e6)


@dataclass(frozen=True)
class TwoBwPlan:
    """A configuration and what it costs.

    Attributes:
        data_parallel: Pipelines, d.
        num_stages: Number of stages of each pipeline, p.
        micro_batch_size: Samples, b.
        recompute: Whether only the inputs of stages are kept, and the rest is computed again.
        accumulation: Micro-batches of a weight update for each stage, g; each pipeline runs p g of them.
        time_ms: Time from one micro-batch of a pipeline to the next.
        memory_mib: Memory that each GPU needs at most.
        reason: Why it cannot be used; empty where it can.
    """

    data_parallel: int
    num_stages: int
    micro_batch_size: int
    recompute: bool
    accumulation: int
    time_ms: float
    memory_mib: float
    reason: str = ""

    @property
    def batch_size(self) -> int:
        """Samples between two weight updates."""
        return self.micro_batch_size * self.data_parallel * self.num_stages * self.accumulation

    @property
    def samples_per_s(self) -> float:
        """Throughput of all pipelines."""
        return self.data_parallel * self.micro_batch_size / self.time_ms * 1e3


def two_bw_plans(
    profile: BlockProfile, cluster: EqualServers, batch_size: int, recompute_factor: float = RECOMPUTE_FACTOR
) -> tuple[TwoBwPlan, ...]:
    """Return every configuration, the best first, and those that cannot be used last.

    They are all (d, p) with d p GPUs at most and p a divisor of the blocks, all micro-batch sizes of the
    profile, with recomputation and without. Of equal throughput those of fewest stages come first, then those
    without recomputation, then of the least memory.

    Args:
        profile: Profile of the model's blocks.
        cluster: Where it runs.
        batch_size: The most samples between two weight updates that do not harm the training.
        recompute_factor: Compute time with recomputation over that without; at least 1.

    Raises:
        PlanError: A figure is out of its range.
    """
    _check_count("batch_size", batch_size)
    if not 1 <= recompute_factor < math.inf:
        raise PlanError(f"recompute_factor: {recompute_factor!r} is not at least 1; give a ratio of times")
    found = [
        _plan(profile, cluster, batch_size, recompute_factor, configuration)
        for configuration in _configurations(profile, cluster)
    ]
    return tuple(
        sorted(
            found,
            key=lambda plan: (
                bool(plan.reason),
                -plan.samples_per_s,
                plan.num_stages,
                plan.recompute,
                plan.memory_mib,
            ),
        )
    )


def memory_bytes(
    profile: BlockProfile,
    num_stages: int,
    micro_batch_size: int,
    *,
    recompute: bool,
    num_versions: int = 2,
    num_in_flight: int | None = None,
) -> float:
    """Return the most that a GPU holds (Sec. 3.2.1 and 3.3.3).

    Weights are counted once for each version, activations once for each micro-batch in flight, with
    recomputation only once, and the stage's input for each.

    Args:
        profile: Profile of the model's blocks.
        num_stages: A divisor of the blocks.
        micro_batch_size: Samples.
        recompute: See `TwoBwPlan`.
        num_versions: 2 for 2BW, 1 for GPipe and PipeDream-Flush.
        num_in_flight: Micro-batches; None for as many as stages, as with 2BW and PipeDream-Flush. GPipe has
            all of the batch.
    """
    in_flight = num_stages if num_in_flight is None else num_in_flight
    blocks = profile.num_blocks / num_stages
    activations = micro_batch_size * profile.activation_bytes * blocks
    return (
        num_versions * profile.parameter_bytes * blocks
        + (1 if recompute else in_flight) * activations
        + in_flight * micro_batch_size * profile.input_bytes
    )


def _configurations(profile: BlockProfile, cluster: EqualServers) -> Iterator[tuple[int, int, int, bool]]:
    """Yield replicas, stages, micro-batch size, and whether there is recomputation."""
    for data_parallel in range(1, cluster.num_gpus + 1):
        for num_stages in range(1, cluster.num_gpus // data_parallel + 1):
            if profile.num_blocks % num_stages == 0:
                for size in sorted(profile.forward_ms):
                    for recompute in (False, True):
                        yield data_parallel, num_stages, size, recompute


def _plan(
    profile: BlockProfile,
    cluster: EqualServers,
    batch_size: int,
    recompute_factor: float,
    configuration: tuple[int, int, int, bool],
) -> TwoBwPlan:
    """Return a configuration with its costs (Sec. 3.3.3); one stage needs one version of its weights."""
    data_parallel, num_stages, size, recompute = configuration
    blocks = profile.num_blocks / num_stages
    compute_ms = blocks * (profile.forward_ms[size] + profile.backward_ms[size])
    if recompute:
        compute_ms *= recompute_factor
    # Input and output of a stage, each also as a gradient.
    handed_bytes = 2 * (2 * size * profile.input_bytes) if num_stages > 1 else 0.0
    handed_ms = cluster.in_pipeline_ms(handed_bytes, data_parallel, num_stages)
    summed_bytes = 2 * (data_parallel - 1) / data_parallel * blocks * profile.parameter_bytes
    summed_ms = cluster.across_pipelines_ms(summed_bytes, data_parallel)
    per_pipeline = batch_size / (data_parallel * size)
    held = memory_bytes(
        profile, num_stages, size, recompute=recompute, num_versions=2 if num_stages > 1 else 1
    )
    accumulation = batch_size // (data_parallel * num_stages * size)
    reasons = []
    if accumulation < 1:
        least = data_parallel * num_stages * size
        reasons.append(f"a batch has at least {least} samples, but batch_size is {batch_size}")
    if held > cluster.memory_mib * _MIB:
        reasons.append(f"needs {held / _MIB:.0f} MiB of {cluster.memory_mib:.0f}")
    return TwoBwPlan(
        data_parallel,
        num_stages,
        size,
        recompute,
        accumulation,
        max(compute_ms + handed_ms, summed_ms / per_pipeline),
        held / _MIB,
        "; ".join(reasons),
    )


def _check_count(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise PlanError(f"{name}: {value!r} is not at least 1; give a whole number")


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise PlanError(f"{name}: {value!r} is not above 0; give a number")
