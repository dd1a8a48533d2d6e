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
# Sequences of a batch have different lengths. A long one takes longer and holds more memory than a short one, so
# the order of the micro-batches matters, and so does which data-parallel replica gets which. Here both are
# searched, beside 1F1B with the sequences as they come and sorted.
#
# A stage has four layers of Llama 3 8B on an H100. The time of a layer is a polynomial of the length, fitted to
# two lengths that were measured with PyTorch 2.11; x is in thousands of tokens.

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
# The table of micro-batches says for each sequence how long a block takes, and what it holds.

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
found = schedsearch.search(batch, work_limit=work_limit)
schedules["searched"] = found.schedule
table = pd.DataFrame(
    {
        "schedule": name,
        "makespan (s)": None if each is None else each.placement.ms(each.makespan) / 1e3,
    }
    for name, each in schedules.items()
)
table

# %%
found

# %% [markdown]
# Where there is no makespan, the order does not fit the memory. With several replicas the slowest one counts.

# %%
shared, answer = replica_search(replica_work(batch, num_replicas), work_limit=work_limit)
spans = [each.placement.ms(each.makespan) / 1e3 for each in shared.schedules]
bound = batch.placement.ms(answer.makespan_bound) / 1e3
print(f"replicas end after {', '.join(f'{each:.2f}' for each in spans)} s; none is under {bound:.2f} s")

# %%
_, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.bar(range(num_sequences), sorted(lengths, reverse=True))
axes.set_xlabel("sequence, by length")
axes.set_ylabel("thousands of tokens")
plt.show()
