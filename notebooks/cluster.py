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
# From names of models to a cluster over days, without a GPU: each model is planned on GPUs of each type, its
# schedule is searched, and the time-energy frontier of that schedule says what each speed costs. A cluster's
# policy then chooses not only who runs where, but how fast.

# %% tags=["parameters"]
models = {"gpt3_1.3b": 64, "llama2_7b": 64}
counts = [2, 4, 8]
workers = {"a100": 8, "h100": 8}
days = 3
jobs_per_day = 18
runs = ("frontier", "frontier_capped", "least_energy")

# %%
import pandas as pd

from placements.gpus import GPUS
from schedsearch.cluster.gpu_cluster import GpuCluster
from schedsearch.cluster.planned_jobs.drawn_jobs import DrawOptions, drawn_jobs
from schedsearch.cluster.planned_jobs.planned_frontier import PlanRequest, planned_frontier
from schedsearch.cluster.planned_jobs.planned_throughputs import planned_throughputs
from schedsearch.cluster.planned_jobs.study import StudyOptions, study
from schedsearch.figures.cluster_study import draw_power_by_hour, draw_savings

# %% [markdown]
# A few plans of each frontier are enough: those of its convex hull that lose least. A GPU without a job is
# taken to draw what it draws while it waits.

# %%
cluster = GpuCluster(workers, idle_power_w={name: GPUS[name].blocking_power_w for name in workers})
found = [
    planned_frontier(PlanRequest(model, gpu_type, gpus, batch))
    for model, batch in models.items()
    for gpu_type in workers
    for gpus in counts
]
table = planned_throughputs(found, max_points=3, idle_power_w=cluster.idle_power_w)
pd.DataFrame(
    {
        "model": model,
        "gpus": gpus,
        "type": gpu_type,
        "steps_per_s": point.steps_per_s,
        "power_w": point.power_w,
    }
    for (model, gpus), of_type in table.throughputs.alone.items()
    for gpu_type, points in of_type.items()
    for point in points
)

# %% [markdown]
# Jobs arrive, half of them with a deadline, and may run on any of these numbers of GPUs.

# %%
jobs = drawn_jobs(table.throughputs, cluster, DrawOptions(days=days, jobs_per_day=jobs_per_day))
result = study(table, jobs, cluster, StudyOptions(runs, 7500.0, spare_s=3600.0))
pd.DataFrame(result.rows()).set_index("run").drop(columns="in_words")

# %%
draw_savings(result.rows())

# %%
draw_power_by_hour(result.kw_by_hour())
