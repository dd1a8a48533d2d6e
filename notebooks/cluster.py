# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A cluster of planned jobs
#
# From model names to a simulated cluster, without a GPU. Each model is planned on each GPU type, its schedule is
# searched, and the time-energy frontier of the schedule gives the power at each speed. The cluster's policy then
# chooses GPUs and speed of each job.

# %% tags=["parameters"]
models = {"gpt3_1.3b": 64, "llama2_7b": 64}
counts = [2, 4, 8]
workers = {"a100": 8, "h100": 8}
days = 3
jobs_per_day = 18
power_cap_w = 7500.0

# %%
import math
from dataclasses import replace
from random import Random

import pandas as pd

from placements.cluster import read_cluster
from placements.gpus import GPUS
from placements.hardware import modelled_profile
from placements.planners.hybrid.plan import PlanError
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.jobs import Job
from schedsearch.cluster.policies.spending import LeastEnergy
from schedsearch.cluster.policies.water_filling import WaterFilling
from schedsearch.cluster.simulator.options import SimulationOptions
from schedsearch.cluster.simulator.simulation import simulate_cluster
from schedsearch.cluster.throughputs import JobOperatingPoint, Throughputs
from schedsearch.energy import compute_frontier
from schedsearch.figures.bars import BarPanel, draw_bars
from schedsearch.planning.planner import plan

# %% [markdown]
# Each plan of a frontier is an operating point of the job, in steps per second and watts. A few points are
# enough, because a policy mixes them over time.

# %%
rows, all_points, highest_clocks = [], {}, {}
for model, batch in models.items():
    for gpus in counts:
        for gpu_type in workers:
            try:
                where = read_cluster(f"{gpu_type}_{gpus}")
                best = plan(model, where, batch, rank_by="simulation", time_limit_s=20).best
            except PlanError:  # it does not fit
                continue
            profile = modelled_profile(best.placement, GPUS[gpu_type])
            frontier = compute_frontier(best.schedule, profile, num_plans=4)
            points = [
                JobOperatingPoint(1e3 / clocks.time_ms, clocks.energy_mj / clocks.time_ms)
                for clocks in (frontier.all_maximum, *frontier.plans)
            ]
            highest_clocks.setdefault((model, gpus), {})[gpu_type] = (points[0],)
            all_points.setdefault((model, gpus), {})[gpu_type] = tuple(points[1:])
            job = {"model": model, "gpus": gpus, "type": gpu_type}
            rows += [job | point._asdict() for point in points[1:]]
pd.DataFrame(rows).drop(columns="clock_mhz")

# %% [markdown]
# Jobs arrive at random, half of them with a deadline. They may run on any of these numbers of GPUs.

# %%
random, jobs, arrival_s = Random(0), [], 0.0
while (arrival_s := arrival_s + random.expovariate(jobs_per_day / 86400)) < days * 86400:
    model, gpus = random.choice(sorted(all_points))
    hours, slo_factor = 24 ** random.random(), random.choice([math.inf, random.uniform(1.5, 4)])
    jobs.append(
        Job(
            f"{len(jobs)}_{model}",
            model,
            3600 * hours * max(point.steps_per_s for (point,) in highest_clocks[model, gpus].values()),
            gpus,
            arrival_s=arrival_s,
            slo_s=3600 * hours * slo_factor,
            other_scale_factors=tuple(n for name, n in all_points if name == model and n != gpus),
        )
    )

# %% [markdown]
# An idle GPU is assumed to draw its blocking power.

# %%
cluster = GpuCluster(workers, idle_power_w={name: GPUS[name].blocking_power_w for name in workers})
capped = replace(cluster, power_cap_w=power_cap_w)
cases = {
    "fair": (cluster, highest_clocks, WaterFilling()),
    "least energy": (cluster, all_points, LeastEnergy(min_share=0.9, margin_s=3600.0)),
    "fair, capped": (capped, highest_clocks, WaterFilling()),
    "fair, capped, frontier": (capped, all_points, WaterFilling()),
}
options = SimulationOptions(reset_s=0.0)
outcomes = {
    name: simulate_cluster(jobs, where, Throughputs(points), policy, options)
    for name, (where, points, policy) in cases.items()
}
pd.DataFrame(
    {
        "run": name,
        "kWh": outcome.figures["kwh"],
        "mean_completion_h": outcome.figures["average_jct_s"] / 3600,
        "makespan_h": outcome.figures["makespan_s"] / 3600,
        "slo_misses": outcome.figures["slo_violations"],
    }
    for name, outcome in outcomes.items()
).set_index("run")

# %%
against = {"least energy": "fair", "fair, capped, frontier": "fair, capped"}
energy = {
    name: outcomes[name].figures["kwh"] / outcomes[base].figures["kwh"] for name, base in against.items()
}
completion = {
    name: outcomes[name].figures["average_jct_s"] / outcomes[base].figures["average_jct_s"]
    for name, base in against.items()
}
draw_bars(
    [
        BarPanel(
            "each run over its baseline at the highest clocks", {"energy": energy, "completion": completion}
        )
    ],
    "share",
    width=7.0,
)
