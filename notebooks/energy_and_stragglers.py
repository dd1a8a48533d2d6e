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
# The frontier of time and energy gives a clock for every block of a schedule. It is computed once. When another
# pipeline is late, the plan for that deadline is looked up (Perseus, Sec. 3).

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
# With unequal stages, all but the slowest can run at lower clocks without delay.

# %%
forward_ms = [40.0 + 2.0 * (device % 3) for device in range(num_devices - 1)] + [50.0]
placement = schedsearch.v_shape(
    num_devices, forward_ms=forward_ms, backward_ms=[2 * time_ms for time_ms in forward_ms]
)
schedule = schedsearch.one_f_one_b(placement, num_micro_batches)

# %%
frontiers = {
    gpu.name: schedsearch.frontier(schedule, modelled_profile(placement, gpu), num_plans)
    for gpu in (A100_SXM_80GB, A40)
}
frontiers[A100_SXM_80GB.name].plot()

# %% [markdown]
# Each plan has a lower bound on the energy of any plan with its time. The gap is the distance to it.

# %%
gaps = {name: max(plan.gap for plan in frontier.plans) for name, frontier in frontiers.items()}
pd.Series(gaps, name="largest gap to the bound").map("{:.2%}".format).to_frame()

# %% [markdown]
# ## Stragglers
#
# A straggler takes `slowdown` times as long as our iteration at maximum clocks. The saving is against maximum
# clocks and then waiting for the straggler.

# %%
rows = []
for name, frontier in frontiers.items():
    for slowdown in slowdowns:
        deadline_ms = slowdown * frontier.all_maximum.time_ms
        saving = frontier.saving(frontier.at(deadline_ms), deadline_ms)
        rows.append({"gpu": name, "slowdown": slowdown, "saving": 100 * saving})
table = pd.DataFrame(rows)
table.pivot(index="slowdown", columns="gpu", values="saving").round(1)

# %%
_, axes = plt.subplots(figsize=(5, 3), layout="constrained")
for (name, group), marker in zip(table.groupby("gpu", sort=False), "os", strict=True):
    axes.plot(group["slowdown"], group["saving"], marker=marker, label=name)
axes.set_xlabel("straggler's time over ours")
axes.set_ylabel("energy saved (%)")
axes.legend()
plt.show()
