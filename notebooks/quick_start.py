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
# A model is cut into eight stages, one for each GPU. We compare 1F1B, DualPipe-V and a searched schedule, look
# at the proof, and choose clocks. The notebook takes about half a minute.

# %% tags=["parameters"]
num_micro_batches = 16
work_limit = 80

# %%
import schedsearch
from placements.gpus import A100_SXM_80GB
from placements.hardware import modelled_profile

# %% [markdown]
# ## The model
#
# The first stage has the embedding and the last one the output layer, so they take longer. Times are in ms,
# memory in MiB. A list has one number for each stage; a single number is for all.

# %%
stages = schedsearch.stages_of(
    forward_ms=[12.5, 10.1, 10.3, 9.7, 10.0, 10.4, 9.9, 14.8],
    input_gradient_ms=[13.1, 11.4, 11.6, 11.0, 11.2, 11.5, 10.9, 15.9],
    weight_gradient_ms=[9.2, 8.7, 8.9, 8.1, 8.4, 8.8, 8.2, 11.3],
    activation_mib=[1400, 1300, 1300, 1250, 1300, 1300, 1250, 1700],
    weight_mib=[5200, 4100, 4100, 4000, 4100, 4100, 4000, 6100],
    memory_mib=24000,
    transfer_ms=0.4,
)

# %% [markdown]
# ## The schedule
#
# The searched schedule takes 30 % less time than 1F1B, and is proved optimal for its shape: a wave with two half
# stages on each GPU, and split backwards.

# %%
comparison = schedsearch.compare(
    stages, ["one_f_one_b", "dual_pipe_v", "searched"], num_micro_batches, work_limit=work_limit
)
columns = ["schedule", "proved", "makespan_ms", "makespan_bound_ms", "bubble_rate", "peak_memory_mib"]
comparison.to_frame()[columns]

# %%
comparison.plot()

# %% [markdown]
# ## Less memory
#
# With equal stages on a V-shape and the memory of 1F1B, nothing beats 1F1B. With less memory 1F1B does not fit.
# The search finds the shortest schedule that does:

# %%
memory = {"activation_mib": 600, "weight_mib": 900}
placement = schedsearch.v_shape(4, forward_ms=10, backward_ms=20, memory_mib=3300, **memory)
tight = placement.with_memory(placement.memory[0] - placement.by_name["F0"].memory)
schedsearch.search(tight, num_micro_batches, work_limit=work_limit)

# %% [markdown]
# ## Clocks
#
# Blocks off the critical path can run at lower clocks. The profile here is a power model of the A100; a measured
# one comes from `schedsearch profile`. Savings are against maximum clocks over an equal time.

# %%
schedule = comparison.rows[-1].solution
frontier = schedsearch.frontier(schedule, modelled_profile(schedule.placement, A100_SXM_80GB), 40)
frontier.to_frame().head()

# %%
deadline_ms = 1.05 * frontier.all_maximum.time_ms
plan = frontier.at(deadline_ms)
print(f"{plan.time_ms:.1f} ms of {deadline_ms:.1f} ms, {frontier.saving(plan, deadline_ms):.1%} less energy")

# %%
frontier.plot()

# %% [markdown]
# ## Save
#
# `save` writes files for the commands: `schedsearch check schedule=schedule.json` checks the proof without the
# search.

# %% tags=["save"]
# comparison.save("compare.json")
# schedule.save("schedule.json")
# frontier.save("frontier.json")
