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
# # What to recompute, what to offload, what to overlap
#
# A stage that lacks memory may recompute its forward, or offload activations to the host. The search decides for
# each stage and micro-batch, together with the order. In 1F1B each stage decides first, and the order comes after.
#
# A stage has four layers of Llama 3 8B with 8192 tokens on an H100, measured with PyTorch 2.11: forward 26.6 ms,
# backward 59.1 ms, 5124 MiB of activations, or 256 MiB and recomputation, or an offload of 98.7 ms each way.

# %% tags=["parameters"]
num_devices = 8
num_micro_batches = 24
memory_gib = [12, 16, 20, 24]
work_limit = 4

# %%
import matplotlib.pyplot as plt
import pandas as pd

import schedsearch

# %%
layers = {"forward_ms": 26.6, "backward_ms": 59.1, "activation_mib": 5124}
recompute = {"recompute_ms": 26.9, "recompute_mib": 256}
offload = {"offload_ms": 98.7, "host_memory_mib": 256 * 1024}
choices = {
    "keep": {},
    "keep or recompute": recompute,
    "keep, recompute or offload": recompute | offload,
}

# %% [markdown]
# Rows without a makespan do not fit the memory. More choices need more work: with an equal `work_limit`, a search
# with offload can end above one without.

# %%
rows = []
for gib in memory_gib:
    for name, levers in choices.items():
        stages = schedsearch.stages_of(num_devices, **layers, **levers, memory_mib=gib * 1024)
        comparison = schedsearch.compare(
            stages, ["one_f_one_b", "searched"], num_micro_batches, work_limit=work_limit
        )
        for row in comparison.rows:
            rows.append(
                {
                    "memory (GiB)": gib,
                    "stages may": name,
                    "schedule": row.schedule,
                    "makespan (ms)": row.makespan_ms,
                    "proved": row.proved,
                    "how": row.note,
                }
            )
table = pd.DataFrame(rows)
table

# %%
_, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
colours = dict(zip(choices, ("tab:orange", "tab:blue", "tab:green"), strict=True))
for (name, schedule), group in table.dropna().groupby(["stages may", "schedule"], sort=False):
    style = "-o" if schedule == "searched" else ":x"
    label = f"{schedule}: {name}"
    axes.plot(group["memory (GiB)"], group["makespan (ms)"], style, color=colours[name], label=label)
axes.set_xlabel("memory of each device for activations (GiB)")
axes.set_ylabel(f"{num_micro_batches} micro-batches (ms)")
axes.legend(fontsize="small")
plt.show()
