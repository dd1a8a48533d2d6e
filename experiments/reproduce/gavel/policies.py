"""Fairness, finish times and first in, first out under load, with and without knowledge of the GPU types.

Sec. 5.7.3: jobs come all the time to 36 V100s, 36 P100s and 36 K80s.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.reproduce.gavel.options import ShorterTraceOptions, TraceOptions
from experiments.reproduce.gavel.study import Factor, Study, Way, Workload, study_item
from schedsearch.cluster.generator import GeneratorOptions

SINGLE = Workload("single", "one GPU, 5.6 jobs per hour", 5.6)
MULTIPLE = Workload(
    "multiple", "1 to 8 GPUs, 2.6 jobs per hour", 2.6, generator=GeneratorOptions(multi_gpu=True)
)
"""Where the dissertation gives its figures (Fig. 5.9 and 5.10)."""

_SMALL = ShorterTraceOptions(jobs=40, seeds=(0,))

_FEWER = (
    "The last fifth of `jobs` jobs counts; the dissertation has 5000, here there are fewer by default. "
    "Queues of a policy that cannot keep up grow as long as jobs come, and factors with them"
)


def _beside_agnostic(workload: Workload, policy: str, **published: float) -> Study:
    """Return a policy beside the same one that takes all types for equal, and the factors by metric."""
    return Study(
        workload,
        {"aware": Way(policy), "agnostic": Way(f"{policy}_agnostic")},
        tuple(published),
        tuple(Factor(metric, "agnostic", "aware", value) for metric, value in published.items()),
    )


LAS_ITEM = study_item(
    "gavel_las",
    "Fig. 5.9 and 5.10",
    "Average completion time of max-min fairness (LAS)",
    (
        _beside_agnostic(SINGLE, "las", average_jct_h=3.5),
        _beside_agnostic(MULTIPLE, "las", average_jct_h=2.2),
    ),
    small=TraceOptions(jobs=40, seeds=(0,)),
    because=(
        "The loads are those at which the dissertation gives its factors, and jobs 4000 to 4999 count, as "
        "there. Its traces are not public: types, durations and arrivals are drawn by the same rules"
    ),
)

FINISH_TIME_ITEM = study_item(
    "gavel_finish_time",
    "Fig. 5.11",
    "Average completion time and finish-time ratio of finish-time fairness",
    (_beside_agnostic(MULTIPLE, "finish_time_fairness", average_jct_h=3.0, average_finish_time_ratio=2.8),),
    small=_SMALL,
    because=(
        f"{_FEWER}. The finish-time ratio takes what a job would have got of its own part of the cluster "
        "over time, with the number of jobs of each moment"
    ),
)

FIFO_ITEM = study_item(
    "gavel_fifo",
    "Sec. 5.7.3",
    "Average completion time of first in, first out",
    (_beside_agnostic(SINGLE, "fifo", average_jct_h=2.7),),
    small=_SMALL,
    because=(
        f"{_FEWER}. The load of the dissertation's figure is not given ('high'); ours is that of LAS. Its "
        "3.8 times with space sharing needs programs of tens of thousands of pairs at every event, and is "
        "left out"
    ),
)

PRIORITIES_ITEM = study_item(
    "gavel_priorities",
    "Sec. 5.7.3",
    "Average completion time of jobs with high and low priority, max-min fairness (LAS)",
    (
        _beside_agnostic(
            replace(SINGLE, generator=GeneratorOptions(priorities=True)),
            "las",
            high_priority_jct_h=1.5,
            low_priority_jct_h=2.7,
        ),
    ),
    small=replace(_SMALL, jobs=60),
    because=f"{_FEWER}. High priority is a weight of 5, as in Gavel's generator",
)

MAKESPAN_ITEM = study_item(
    "gavel_makespan",
    "Sec. 5.7.3",
    "Makespan of jobs that are all there from the start",
    (
        Study(
            Workload("static", "one GPU, all at the start", 0.0, is_steady=False),
            {
                "aware": Way("makespan"),
                "FIFO": Way("fifo_agnostic"),
                "Gandiva": Way("gandiva"),
            },
            ("makespan_h",),
            (Factor("makespan_h", "FIFO", "aware", 2.5), Factor("makespan_h", "Gandiva", "aware", 1.4)),
        ),
    ),
    small=_SMALL,
    because=(
        "The number of jobs is not given. Space sharing, which shortens the makespan by 8 % more in the "
        "dissertation, needs programs of tens of thousands of pairs, and is left out"
    ),
)

ITEMS = (LAS_ITEM, FINISH_TIME_ITEM, MAKESPAN_ITEM, FIFO_ITEM, PRIORITIES_ITEM)
