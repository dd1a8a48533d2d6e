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
# # Quick start
#
# A model is cut into stages, one on each device. We search the shortest schedule, look at its proof, choose
# clocks for it, and save everything. The whole notebook takes a few seconds.

# %% tags=["parameters"]
num_devices = 4
num_micro_batches = 16

# %%
import pandas as pd

import schedsearch
from placements.hardware import A100_SXM_80GB, modelled_profile

# %% [markdown]
# ## What runs where
#
# A V-shape: device 0 has the first stage, the last device the last one, and backward goes the way back. Times
# are in ms, memory in MiB; a number is for all stages, a list has one for each.

# %%
placement = schedsearch.v_shape(
    num_devices,
    forward_ms=10,
    backward_ms=20,
    activation_mib=600,
    weight_mib=900,
    memory_mib=900 + 600 * num_devices,
)
pd.DataFrame(placement.blocks)[["name", "kind", "devices", "time", "memory", "after"]]

# %% [markdown]
# ## In which order
#
# `OPTIMAL` is a proof: no repeating pattern has a shorter period. The makespan has a bound of its own.

# %%
result = schedsearch.search(placement, num_micro_batches)
result.to_frame()

# %%
result.plot()

# %% [markdown]
# With this memory the search ends where 1F1B does. With less, 1F1B does not fit any more, and the search says
# what that costs:

# %%
tight = placement.with_memory(placement.memory[0] - placement.by_name["F0"].memory)
schedsearch.search(tight, num_micro_batches, micro_batches_per_repetend=1, time_limit_s=10)

# %% [markdown]
# ## At what clock
#
# Blocks that are not on the critical path may run slower. The profile here is a model of the A100's power; a
# measured one comes from `experiments.profile`. Savings are against all blocks at the highest clock, over an
# equal time.

# %%
frontier = schedsearch.frontier(result.schedule, modelled_profile(placement, A100_SXM_80GB), 40)
frontier.to_frame().head()

# %%
deadline_ms = 1.05 * frontier.all_maximum.time_ms
plan = frontier.at(deadline_ms)
print(f"{plan.time_ms:.1f} ms of {deadline_ms:.1f} ms, {frontier.saving(plan):.1%} less energy")

# %%
frontier.plot()

# %% [markdown]
# ## Keep it
#
# `save` writes the form that the commands read: `python -m experiments.check schedule=schedule.json` proves
# the result once more without the search.

# %% tags=["save"]
# result.save("schedule.json")
# frontier.save("frontier.json")
