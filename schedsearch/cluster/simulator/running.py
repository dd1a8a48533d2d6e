"""All configurations of one round: how many steps they do, until when, and what failures take back.

A job does as many whole steps as fit in the round, or what it has left; a step that is longer than a round is
done in parts, so that it ends at all. Two jobs on the same GPUs begin together, and keep the throughputs of
the pair until the round ends, also where one of them is done before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schedsearch.cluster.demand import NOBODY, FloatArray, IntArray
from schedsearch.cluster.rounds import Assignment, RunnableConfigurations
from schedsearch.cluster.simulator.job_table import JobTable
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.outcome import JobRun


@dataclass(frozen=True, eq=False)
class RoundRuns:
    """The configurations of a round and their steps, as arrays.

    Attributes:
        assignments: Assignments of the round.
        gpu_type: GPU type of each assignment.
        gpus: GPUs of each assignment.
        power_w: Power of each assignment.
        first_step_s: When its jobs begin, after what their start costs.
        end_s: When its last job stops, or one of its GPUs fails.
        failed: A GPU fails before its jobs stop.
        of: Index of the assignment of each run of a job; all further arrays have one entry for each of these.
        job: Index of the job.
        steps_per_s: Its throughput.
        renewed: It keeps its GPUs.
        steps: Steps that it does, or below 0 for those that it loses.
        steps_left: After the round.
        job_end_s: When it stops, if no GPU fails before.
    """

    assignments: Sequence[Assignment]
    gpu_type: IntArray
    gpus: IntArray
    power_w: FloatArray
    first_step_s: FloatArray
    end_s: FloatArray
    failed: npt.NDArray[np.bool_]
    of: IntArray
    job: IntArray
    steps_per_s: FloatArray
    renewed: npt.NDArray[np.bool_]
    steps: FloatArray
    steps_left: FloatArray
    job_end_s: FloatArray

    def recorded(self) -> tuple[JobRun, ...]:
        """Return the same one by one."""
        bounds = np.searchsorted(self.of, np.arange(len(self.assignments) + 1)).tolist()
        return tuple(
            JobRun(
                tuple(self.job[first:last].tolist()),
                one.gpu_type,
                one.gpu_ids,
                tuple(self.steps_per_s[first:last].tolist()),
                float(self.power_w[number]),
                float(self.first_step_s[number]),
                float(self.end_s[number]),
                tuple(self.steps[first:last].tolist()),
                one.renewed,
                bool(self.failed[number]),
            )
            for number, (one, first, last) in enumerate(
                zip(self.assignments, bounds, bounds[1:], strict=False)
            )
        )


def run(
    assignments: Sequence[Assignment],
    candidates: RunnableConfigurations,
    table: JobTable,
    start_s: float,
    fails_s: FloatArray,
    options: SimulationOptions,
) -> RoundRuns:
    """Return what a round brings; changes nothing.

    Args:
        assignments: Assignments of the round; at least one.
        candidates: Candidates of the rounds.
        table: How far the jobs are, before the round.
        start_s: Begin of the round.
        fails_s: When the first GPU of each assignment fails.
        options: Options of the simulation.
    """
    of = np.repeat(np.arange(len(assignments)), [len(one.jobs) for one in assignments])
    job = np.array([table.index[name] for one in assignments for name in one.jobs], dtype=np.int64)
    renewed = np.array([flag for one in assignments for flag in one.renewed], dtype=bool)
    ways = candidates.configurations.only(np.array([one.placed_as for one in assignments], dtype=np.int64))
    rate = ways.steps_per_s[ways.jobs != NOBODY]
    lost_s = np.zeros(len(assignments))
    if options.restart_s or options.checkpoint_s:
        cost_s = options.restart_s + options.checkpoint_s * (table.rows["starts"][job] > 0)
        np.maximum.at(lost_s, of, np.where(renewed, 0.0, cost_s))
    left = table.rows["steps_left"][job]
    fitting = rate * (options.round_s - lost_s)[of]
    whole = np.floor(fitting)
    steps = np.minimum(np.where(whole > 0, whole, fitting), left)
    first_step_s = start_s + lost_s
    job_end_s = first_step_s[of] + steps / rate
    end_s = np.full(len(assignments), start_s)
    np.maximum.at(end_s, of, job_end_s)
    failed = fails_s < end_s
    if failed.any():
        end_s = np.where(failed, np.maximum(fails_s, start_s), end_s)
        is_cut = failed[of] & ~((steps >= left) & (job_end_s <= end_s[of]))
        loses_more = options.failures is not None and options.failures.loses_lease
        taken_back = np.where(renewed, left - table.rows["steps_saved"][job], 0.0) if loses_more else 0.0
        steps = np.where(is_cut, taken_back, steps)
    return RoundRuns(
        assignments,
        ways.gpu_type,
        ways.gpus,
        ways.power_w,
        first_step_s,
        end_s,
        failed,
        of,
        job,
        rate,
        renewed,
        steps,
        left - steps,
        job_end_s,
    )
