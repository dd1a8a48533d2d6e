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
# # Searched against hand-made
#
# Schedules of one model side by side, each on its own placement, with equal memory (weights included) and an
# equal number of samples. `searched` is the best schedule found on all of these placements.

# %% tags=["parameters"]
num_devices = 4
num_micro_batches = 16
schedules = [
    "searched",
    "gpipe",
    "one_f_one_b",
    "interleaved_one_f_one_b",
    "chimera",
    "zb_h1",
    "zb_v",
    "dual_pipe",
]
work_limit = 20

# %%
import matplotlib.pyplot as plt

import schedsearch

# %% [markdown]
# The last stage also has the output layer. Schedules made for equal stages lose time here.

# %%
forward_ms = [10.0] * (num_devices - 1) + [14.0]
stages = schedsearch.stages_of(
    forward_ms=forward_ms,
    backward_ms=[2 * time_ms for time_ms in forward_ms],
    activation_mib=600,
    weight_mib=900,
    memory_mib=2 * 900 + 600 * (num_devices + 1),
)
comparison = schedsearch.compare(stages, schedules, num_micro_batches, work_limit=work_limit)
table = comparison.to_frame()
table[["schedule", "proved", "makespan_ms", "bubble_rate", "peak_memory_mib", "note"]]

# %% [markdown]
# All timelines on one axis:

# %%
comparison.plot()

# %% [markdown]
# Extra time against the best one. A missing schedule does not fit the memory or is not defined for the model; its
# note says why.

# %%
best_ms = table["makespan_ms"].min()
longer = (table.set_index("schedule")["makespan_ms"] / best_ms - 1).dropna() * 100
_, axes = plt.subplots(figsize=(5, 2.5), layout="constrained")
axes.barh(longer.index, longer)
axes.invert_yaxis()
axes.set_xlabel("longer than the best (%)")
plt.show()
