"""PipeDream-2BW's planner: every number of replicas and stages, micro-batch size, and recomputation or not.

The model is equal blocks, as many in each stage, and every stage has the same number of replicas. Costs are
the closed forms of Narayanan's dissertation (Sec. 3.3.3), read as its text means them where they are printed
otherwise: throughput counts all replicas, and gradients are accumulated over the rest of a batch. The module
does not know the order of micro-batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

RECOMPUTE_FACTOR = 4 / 3
"""Compute time with recomputation over that without, where a backward takes as long as two forwards."""

_MIB = 2**20


@dataclass(frozen=True)
class BlockProfile:
    """A profile of a model of equal blocks, for example a transformer's layers.

    Attributes:
        forward_ms: One block's forward, by micro-batch size.
        backward_ms: Its backward, for the same sizes.
        parameter_bytes: Parameters of one block.
        activation_bytes: Bytes that one block keeps of a sample until its backward.
        input_bytes: One sample between two blocks.
    """

    num_blocks: int
    forward_ms: Mapping[int, float]
    backward_ms: Mapping[int, float]
    parameter_bytes: float
    activation_bytes: float
    input_bytes: float


@dataclass(frozen=True)
class EqualServers:
    """Equal servers of equal GPUs, of which `num_gpus` are in all servers together."""

    num_gpus: int
    gpus_per_server: int
    in_server_gb_per_s: float
    between_servers_gb_per_s: float
    memory_mib: float

    def in_pipeline_ms(self, num_bytes: float, data_parallel: int, num_stages: int) -> float:
        """Return the time of bytes between stages: within a server if all pipelines fit into one.

        The dissertation leaves this to the reader. Replicas of a stage are beside each other (Fig. 3.4), so
        that pipelines which do not all fit into a server leave it.
        """
        return self.ms(num_bytes, data_parallel * num_stages <= self.gpus_per_server)

    def ms(self, num_bytes: float, is_in_server: bool) -> float:
        """Return the time of bytes between GPUs of a server, or of two."""
        rate = self.in_server_gb_per_s if is_in_server else self.between_servers_gb_per_s
        return num_bytes / (rate * 1e6)


@dataclass(frozen=True)
class TwoBwPlan:
    """A configuration with its time and memory.

    Attributes:
        data_parallel: Pipelines, d.
        num_stages: Number of stages of each pipeline, p.
        micro_batch_size: Samples, b.
        recompute: Whether only the inputs of stages are kept, and the rest is computed again.
        accumulation: Micro-batches of a weight update for each stage, g; each pipeline runs p g of them.
        time_ms: Time from one micro-batch of a pipeline to the next.
        memory_mib: Memory that each GPU needs at most.
        reason: Reason why the configuration cannot be used; empty where it can.
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


def two_bw_plans(profile: BlockProfile, servers: EqualServers, batch_size: int) -> tuple[TwoBwPlan, ...]:
    """Return every configuration, the best first, configurations that cannot be used last.

    They are all (d, p) with d p GPUs at most and p a divisor of the blocks, all micro-batch sizes of the
    profile, with recomputation and without. Of equal throughput those of fewest stages come first, then those
    without recomputation, then of the least memory.

    Args:
        profile: The model.
        servers: Servers for the model.
        batch_size: The most samples between two weight updates that do not harm the training.
    """
    forms = itertools.product(
        *(range(1, servers.num_gpus + 1),) * 2, sorted(profile.forward_ms), (False, True)
    )
    plans = [
        _plan(profile, servers, batch_size, form)
        for form in forms
        if form[0] * form[1] <= servers.num_gpus and profile.num_blocks % form[1] == 0
    ]

    def order(plan: TwoBwPlan) -> tuple[float, ...]:
        return bool(plan.reason), -plan.samples_per_s, plan.num_stages, plan.recompute, plan.memory_mib

    return tuple(sorted(plans, key=order))


def _plan(
    profile: BlockProfile, servers: EqualServers, batch_size: int, form: tuple[int, int, int, bool]
) -> TwoBwPlan:
    """Return a configuration (d, p, b, recomputation) with its costs (Sec. 3.2.1 and 3.3.3).

    A GPU holds two versions of the weights, or one where there is one stage; the activations of as many
    micro-batches as stages, with recomputation of one; and the stage's input of each.
    """
    data_parallel, num_stages, size, recompute = form
    blocks, least = profile.num_blocks / num_stages, data_parallel * num_stages * size
    compute_ms = blocks * (profile.forward_ms[size] + profile.backward_ms[size])
    compute_ms *= RECOMPUTE_FACTOR if recompute else 1
    # Input and output of a stage, each also as a gradient.
    handed_bytes = 2 * (2 * size * profile.input_bytes) if num_stages > 1 else 0.0
    handed_ms = servers.in_pipeline_ms(handed_bytes, data_parallel, num_stages)
    summed_bytes = 2 * (data_parallel - 1) / data_parallel * blocks * profile.parameter_bytes
    summed_ms = servers.ms(summed_bytes, data_parallel < servers.gpus_per_server)
    held = (
        (2 if num_stages > 1 else 1) * profile.parameter_bytes * blocks
        + (1 if recompute else num_stages) * (size * profile.activation_bytes * blocks)
        + num_stages * size * profile.input_bytes
    )
    reasons = []
    if batch_size < least:
        reasons.append(f"a batch has at least {least} samples, but batch_size is {batch_size}")
    if held > servers.memory_mib * _MIB:
        reasons.append(f"needs {held / _MIB:.0f} MiB of {servers.memory_mib:.0f}")
    return TwoBwPlan(
        *form,
        batch_size // least,
        max(compute_ms + handed_ms, summed_ms / (batch_size / (data_parallel * size))),
        held / _MIB,
        "; ".join(reasons),
    )
