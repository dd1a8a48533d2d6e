"""Rules of thumb for large transformers in place of a search (Narayanan's dissertation, Sec. 4.3).

Share layers inside a server first, and put stages on several (Takeaway 1); stop as soon as the model fits,
and use all other GPUs for more replicas (2); take the micro-batch size of the least time (3, Eq. 4.1). The
module does not know the model: others say what fits and what a micro-batch takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from placements.planners.parallel_plan import PlanError


@dataclass(frozen=True)
class RulesPlan:
    """What the rules decide.

    Attributes:
        num_stages: p.
        tensor_parallel: GPUs that share each layer, t.
        data_parallel: Replicas, d; p t d is all GPUs.
        micro_batch_size: Samples, b.
        batch_ms: Time of a batch by Equation 4.1.
    """

    num_stages: int
    tensor_parallel: int
    data_parallel: int
    micro_batch_size: int
    batch_ms: float


def megatron_rules(
    num_gpus: int,
    gpus_per_server: int,
    batch_size: int,
    micro_batch_sizes: Iterable[int],
    fits: Callable[[int, int, int], bool],
    time_ms: Callable[[int], float],
) -> RulesPlan:
    """Return the configuration that the rules give.

    Args:
        num_gpus: Of all servers.
        gpus_per_server: The most that share a layer.
        batch_size: Samples of an iteration.
        micro_batch_sizes: To choose from.
        fits: Whether memory suffices, and layers divide, given t, p and b.
        time_ms: Forward and backward of a micro-batch of b samples on one stage.

    Raises:
        PlanError: Nothing fits, or a number is not at least 1.
    """
    sizes = sorted(set(micro_batch_sizes))
    counts = {"num_gpus": num_gpus, "gpus_per_server": gpus_per_server, "batch_size": batch_size}
    for name, value in (*counts.items(), *(("micro_batch_sizes", size) for size in sizes)):
        if type(value) is not int or value < 1:
            raise PlanError(f"{name}: {value!r} is not at least 1; give a whole number")
    for tensor_parallel, num_stages in _degrees(num_gpus, gpus_per_server):
        data_parallel, rest = divmod(num_gpus, tensor_parallel * num_stages)
        assert not rest, "degrees divide the GPUs"
        times = {
            size: (batch_size // (data_parallel * size) + num_stages - 1) * time_ms(size)
            for size in sizes
            if batch_size % (data_parallel * size) == 0 and fits(tensor_parallel, num_stages, size)
        }
        if times:
            best = min(times, key=lambda size: (times[size], size))
            return RulesPlan(num_stages, tensor_parallel, data_parallel, best, times[best])
    raise PlanError(
        f"num_gpus: {num_gpus} are too few with any of the micro-batch sizes; give more GPUs, or "
        f"a batch_size other than {batch_size} that replicas and micro-batches divide"
    )


def _degrees(num_gpus: int, gpus_per_server: int) -> Iterator[tuple[int, int]]:
    """Yield t and p in the order in which they are tried: more of t up to a server, then more of p."""
    in_server = [t for t in range(1, gpus_per_server + 1) if gpus_per_server % t == 0 and num_gpus % t == 0]
    yield from ((t, 1) for t in in_server)
    left = num_gpus // in_server[-1]
    yield from ((in_server[-1], p) for p in range(2, left + 1) if left % p == 0)
