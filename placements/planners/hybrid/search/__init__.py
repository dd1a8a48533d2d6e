"""The search for plans of a model on a cluster.

In the order in which to read:

- `plan_numbers`: the numbers of stages, GPUs and micro-batches that it tries
- `plan_bounds`: times that no stage with given layers can beat
- `pipeline_stages`: the stages of one pipeline
- `plan_search`: stages, micro-batches and strategies with the shortest iteration
- `layout_search`: all layouts of a training framework, and what a formula says of each
- `rules_of_thumb`: Megatron's, to compare with
"""
