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
# # Planning
#
# From a model and a cluster to a placement, without a GPU. The planner proposes plans by a cost model; the
# schedule found for each plan decides the ranking.

# %% tags=["parameters"]
model = "llama2_70b"
cluster = "h100_128"
batch = 1024
time_limit_s = 60

# %%
import schedsearch
from schedsearch.planning.explanation import explain

# %%
plans = schedsearch.plan(model, cluster, batch, time_limit_s=time_limit_s)
plans.to_frame()

# %% [markdown]
# The best plan, its stages, and the others:

# %%
print(explain(plans))

# %%
plans.plot()

# %% [markdown]
# The same on the command line, and a search on the best plan's placement:
#
# ```sh
# schedsearch plan model=llama2_70b cluster=h100_128 batch=1024 hydra.run.dir=planned
# schedsearch search placement=planned placement.path=planned
# ```

# %%
best = plans.best
print(f"{best.name}: {best.training_figures(plans.model)}")
