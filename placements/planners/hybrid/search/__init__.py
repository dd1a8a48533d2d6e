"""The search for plans of a model on a cluster.

In the order in which to read:

- `pipeline`: the stages of one pipeline, bounds on them, and layers divided into them
- `plan_search`: stages, micro-batches and strategies with the shortest iteration
- `layout_search`: all layouts of a training framework, and a formula's estimate of each
"""
