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
# A stage that lacks memory may compute its forward again, or send activations to the host and back. Which stage
# does so, for which micro-batches and in which order is one question to the search. Here it is beside 1F1B, whose
# stages decide first, each for itself, and are scheduled then.
#
# Times and memory are of four layers of Llama 3 8B with 8192 tokens on an H100 (measured with PyTorch 2.11): 26.6
# ms forward, 59.1 ms backward, 5124 MiB kept or 256 MiB and the forward again, 98.7 ms to the host or back.

# %% tags=["parameters"]
num_devices = 8
num_micro_batches = 24
memory_gib = [20, 30, 40]
work_limit = 2

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
# `proved` says what is proved of each row. Where a schedule does not fit there is no time.

# %%
rows = []
for gib in memory_gib:
    for name, levers in choices.items():
        stages = schedsearch.stages_of(num_devices, **layers, **levers, memory_mib=gib * 1024)
        found = schedsearch.compare(
            stages, ["one_f_one_b", "searched"], num_micro_batches, work_limit=work_limit
        )
        for row in found.rows:
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
for (name, schedule), each in table.groupby(["stages may", "schedule"], sort=False):
    style = "-" if schedule == "searched" else ":"
    axes.plot(each["memory (GiB)"], each["makespan (ms)"], style, marker="o", label=f"{schedule}: {name}")
axes.set_xlabel("memory of each device for activations (GiB)")
axes.set_ylabel(f"{num_micro_batches} micro-batches (ms)")
axes.legend(fontsize="small")
plt.show()
