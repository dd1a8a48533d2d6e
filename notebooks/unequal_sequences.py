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
# # A batch of unequal sequences
#
# Long sequences take more time and memory than short ones. So the order of the micro-batches matters, and their
# distribution over data-parallel replicas. Here both are searched, beside 1F1B with the sequences as given and
# sorted.
#
# A stage has four layers of Llama 3 8B on an H100. The time of a layer is a polynomial of the length x in
# thousands of tokens, fitted to two lengths measured with PyTorch 2.11.

# %% tags=["parameters"]
num_devices = 8
num_sequences = 32
num_replicas = 2
memory_gib = 64
work_limit = 4
seed = 0

# %%
import random

import matplotlib.pyplot as plt
import pandas as pd

import schedsearch
from placements.profiles.length_rules import fitted, in_words, value
from schedsearch.unequal.replica_work import replica_work
from schedsearch.unequal.starts import by_hand
from schedsearch.unequal.unequal_search import replica_search

# %%
layers = 4
measured_ms = {"F": {4.096: 3.2467, 8.192: 6.6508}, "B": {4.096: 6.943, 8.192: 14.7745}}  # of a layer
kept_mib = 156.4  # of each thousand tokens
rules = {kind: fitted(times.items(), powers=(1, 2)) for kind, times in measured_ms.items()}
print("\n".join(f"{kind}: {in_words(rule)} ms" for kind, rule in rules.items()))

draw = random.Random(seed)
lengths = [min(32.768, draw.lognormvariate(1.504, 1.0)) for _ in range(num_sequences)]
pd.Series(lengths).describe()

# %% [markdown]
# A row for each block of each sequence: time in ms, memory in MiB.

# %%
placement = schedsearch.v_shape(num_devices).with_memory(memory_gib * 1024)
rows = []
for n, length in enumerate(lengths):
    for block in placement.blocks:
        time_ms = round(layers * value(rules[str(block.kind)], length), 1)
        held = round(layers * kept_mib * length) * (1 if str(block.kind) == "F" else -1)
        rows.append(schedsearch.MicroBatchRow(n, block.name, time_ms, held))
batch = schedsearch.unequal_batch(placement, rows)

# %%
schedules = by_hand(batch, ["one_f_one_b"])
answer = schedsearch.search(batch, work_limit=work_limit)
schedules["searched"] = answer.schedule
table = pd.DataFrame(
    {
        "schedule": name,
        "makespan (s)": None if schedule is None else schedule.placement.ms(schedule.makespan) / 1e3,
    }
    for name, schedule in schedules.items()
)
table

# %%
answer

# %% [markdown]
# Orders without a makespan do not fit the memory. With several replicas the slowest one counts.

# %%
shared, shared_answer = replica_search(replica_work(batch, num_replicas), work_limit=work_limit)
ends_s = [schedule.placement.ms(schedule.makespan) / 1e3 for schedule in shared.schedules]
bound_s = batch.placement.ms(shared_answer.makespan_bound) / 1e3
print(", ".join(f"{end_s:.2f} s" for end_s in ends_s), f"by replica; lower bound {bound_s:.2f} s")

# %%
_, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.bar(range(num_sequences), sorted(lengths, reverse=True))
axes.set_xlabel("sequence, by length")
axes.set_ylabel("thousands of tokens")
plt.show()
