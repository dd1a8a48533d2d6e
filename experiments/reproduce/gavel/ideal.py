"""Jobs that get their computed throughputs exactly, at every moment, as no cluster can do (Fig. 5.15b)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import ActiveJob, Job
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.throughputs import Throughputs

_ALMOST_DONE = 1e-9
"""Part of a job's steps that rounding errors may leave."""


def ideal_average_jct_s(
    trace: Iterable[Job],
    cluster: GpuCluster,
    throughputs: Throughputs,
    policy: Policy,
    window: tuple[int, int],
) -> float:
    """Return the average completion time if the policy decides anew whenever a job comes or ends.

    Args:
        trace: Jobs in the order of their arrival, at least those of the window.
        cluster: Where they run.
        throughputs: Throughputs of their types.
        policy: One that does not look at times, as they are not kept here.
        window: First job that counts, and the one after the last.
    """
    arrivals = iter(trace)
    number, coming = 0, next(arrivals, None)
    now_s, active, jct_s = 0.0, dict[int, ActiveJob](), dict[int, float]()
    counted = range(*window)
    while not all(each in jct_s for each in counted):
        if not active and coming is not None:
            now_s = max(now_s, coming.arrival_s)
        while coming is not None and coming.arrival_s <= now_s:
            active[number] = ActiveJob(coming, coming.steps)
            number, coming = number + 1, next(arrivals, None)
        rates = policy.allocate(throughputs.demand(cluster, [*active.values()])).rates
        left_s = min(
            (one.steps_left / rate for one, rate in zip(active.values(), rates, strict=True) if rate > 0),
            default=math.inf,
        )
        passed_s = min(left_s, (coming.arrival_s if coming else math.inf) - now_s)
        now_s += passed_s
        for (index, one), rate in zip([*active.items()], rates, strict=True):
            left = one.steps_left - rate * passed_s
            if left <= _ALMOST_DONE * one.job.steps:
                jct_s[index] = now_s - one.job.arrival_s
                del active[index]
            else:
                active[index] = replace(one, steps_left=left)
    return fmean(jct_s[each] for each in counted)
