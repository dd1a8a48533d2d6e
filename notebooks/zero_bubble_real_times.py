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
# # Zero bubble with real times
#
# Schedules with split backwards, with times measured by the authors of "Zero Bubble Pipeline Parallelism" (ICLR
# 2024): a stage of their 1.5B model on 8 GPUs, in µs, from `efficiency.py` of their repository. Put your own
# times into the first cell.

# %% tags=["parameters"]
num_devices = 8
num_micro_batches = 24
forward_us, input_us, weight_us, transfer_us = 18522, 18086, 9337, 601
hidden_size, num_heads = 2304, 24
work_limit = 15

# %%
import matplotlib.pyplot as plt
import pandas as pd

import schedsearch
from experiments.reproduce.measured.zero_bubble import StageTimes
from schedsearch.device_span import device_spans, with_least_device_span
from schedsearch.metrics import peak_memory

# %% [markdown]
# A forward keeps 34 h + 5 a s bytes for each token and layer, with hidden size h, a heads and s = 1024 tokens.
# The input gradient releases all but 32 h bytes, which the weight gradient needs. One tick is 1 µs.

# %%
times = StageTimes(
    num_stages=num_devices,
    num_micro_batches=num_micro_batches,
    forward_us=forward_us,
    input_us=input_us,
    weight_us=weight_us,
    transfer_us=transfer_us,
    hidden_size=hidden_size,
    num_heads=num_heads,
)
placement = times.with_split_backward()

# %% [markdown]
# ## Two metrics
#
# A schedule has two bubble rates. The *makespan* goes from the first start to the last end on all devices. The
# *device span* goes from a device's own first start to its own last end: the iteration time if devices begin the
# next iteration without a barrier. Compare only within a column.


# %%
def figures(name: str, schedule: schedsearch.Schedule) -> dict[str, object]:
    """Return the row of a schedule."""
    spans = with_least_device_span(schedule)
    return {
        "schedule": name,
        "bubble by makespan": 1 - times.work_us / schedule.makespan,
        "bubble by device span": 1 - times.work_us / int(device_spans(spans).max()),
        "peak activations": int(peak_memory(schedule).max()) / placement.by_name["F0"].memory,
    }


schedules = {
    "ZB-H1": schedsearch.zb_h1(placement, num_micro_batches),
    "ZB-H2": schedsearch.zb_h2(placement, num_micro_batches),
}

# %% [markdown]
# ## Searched, with the memory of each

# %%
for multiple, name in ((1, "searched, memory of ZB-H1"), (2, "searched, memory of ZB-H2")):
    answer = schedsearch.search(
        times.with_split_backward(multiple * num_devices),
        num_micro_batches,
        objectives=["device_span"],
        work_limit=work_limit,
    )
    schedules[name] = answer.schedule

table = pd.DataFrame([figures(name, schedule) for name, schedule in schedules.items()]).set_index("schedule")
table.round(4)

# %%
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
(100 * table[["bubble by makespan", "bubble by device span"]]).plot.barh(ax=axes, legend=False)
axes.invert_yaxis()
axes.set_xlabel("bubble (%)")
axes.set_ylabel("")
figure.legend(loc="outside lower center", ncols=2)
plt.show()

# %%
schedules["searched, memory of ZB-H2"].plot()
