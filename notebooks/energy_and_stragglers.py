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
# # Energy and stragglers
#
# One schedule, and a clock for every block of every micro-batch: the frontier of time and energy. It is computed
# once; when another pipeline is late, the plan for its end is looked up (Perseus, Sec. 3).

# %% tags=["parameters"]
num_devices = 4
num_micro_batches = 16
num_plans = 100
slowdowns = (1.0, 1.05, 1.1, 1.2, 1.3, 1.5)

# %%
import matplotlib.pyplot as plt
import pandas as pd

import schedsearch
from placements.gpus import A40, A100_SXM_80GB
from placements.hardware import modelled_profile

# %% [markdown]
# Stages that are not equal leave room: all but the slowest may run at lower clocks without delay.

# %%
forward_ms = [40.0 + 2.0 * (device % 3) for device in range(num_devices - 1)] + [50.0]
placement = schedsearch.v_shape(
    num_devices, forward_ms=forward_ms, backward_ms=[2 * each for each in forward_ms]
)
schedule = schedsearch.one_f_one_b(placement, num_micro_batches)

# %%
frontiers = {
    gpu.name: schedsearch.frontier(schedule, modelled_profile(placement, gpu), num_plans)
    for gpu in (A100_SXM_80GB, A40)
}
first = next(iter(frontiers.values()))
first.plot()

# %% [markdown]
# Every plan is simulated with its real clocks, and has a bound: no plan of its time uses less energy.

# %%
gaps = {name: max(plan.gap for plan in each.plans) for name, each in frontiers.items()}
pd.Series(gaps, name="largest gap to the bound").map("{:.2%}".format).to_frame()

# %% [markdown]
# ## Stragglers
#
# A straggler ends `slowdown` times later than our iteration at the highest clocks. The saving is against all
# blocks at the highest clock, which then wait for it.

# %%
rows = []
for name, each in frontiers.items():
    for slowdown in slowdowns:
        plan = each.at(slowdown * each.all_maximum.time_ms)
        rows.append({"gpu": name, "slowdown": slowdown, "saving": 100 * each.saving(plan)})
table = pd.DataFrame(rows)
table.pivot(index="slowdown", columns="gpu", values="saving").round(1)

# %%
_, axes = plt.subplots(figsize=(5, 3), layout="constrained")
for (name, rows_of), marker in zip(table.groupby("gpu", sort=False), "os", strict=True):
    axes.plot(rows_of["slowdown"], rows_of["saving"], marker=marker, label=name)
axes.set_xlabel("straggler's time over ours")
axes.set_ylabel("energy saved (%)")
axes.legend()
plt.show()
