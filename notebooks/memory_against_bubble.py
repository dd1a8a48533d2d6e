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
# # Memory against bubble
#
# With less memory, fewer micro-batches are in flight and devices wait. For each shape and each memory limit, in
# activations of a stage, we search the shortest period (as in Tessel, Fig. 12).

# %% tags=["parameters"]
num_devices = 4
most_memory = 6
work_limit = 10

# %%
import matplotlib.pyplot as plt
import pandas as pd

import schedsearch

# %%
shapes = {
    "V": schedsearch.v_shape(num_devices, 1, 2),
    "X": schedsearch.x_shape(num_devices, 1, 2),
    "M": schedsearch.m_shape(num_devices),
    "V, backward in two": schedsearch.v_shape(num_devices, 1, 2, split_backward=True),
}

# %% [markdown]
# `repetend.bubble_rate` is the idle share of the steady state. Without a number, no schedule fits this memory
# (`infeasible`, proved) or none was found (`unknown`).

# %%
rows = []
for name, placement in shapes.items():
    for memory in range(1, most_memory + 1):
        result = schedsearch.search(
            placement.with_memory(memory),
            4 * num_devices,
            objectives=["period"],
            work_limit=work_limit,
        )
        rate = None if result.repetend is None else 100 * result.repetend.bubble_rate
        rows.append({"shape": name, "memory": memory, "proved": result.proved, "bubble": rate})
table = pd.DataFrame(rows)
table.pivot(index="memory", columns="shape", values="bubble").round(1)

# %%
_, axes = plt.subplots(figsize=(5, 3), layout="constrained")
for (name, group), marker in zip(table.groupby("shape", sort=False), "osD^", strict=True):
    axes.plot(group["memory"], group["bubble"], marker=marker, label=name)
axes.set_xlabel("memory (activations of a stage)")
axes.set_ylabel("bubble of the steady state (%)")
axes.legend()
plt.show()
