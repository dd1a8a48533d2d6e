"""Plans of layers over GPUs in several kinds of parallelism at once, searched for a model on a cluster.

- `plan`: what a plan is; `joined_plan`: of a model whose branches join
- `decision_trees`: the ways in which GPUs can share a layer
- `stage_tables`: what each way costs, for the search inside a stage; `shape_costs`: by the layers' shapes;
  `profiled`: by measured profiles
- `plan_bounds`: what no plan with given stages can beat
- `plan_options`: what a search may do and finds; `plan_numbers`: which numbers it tries
- `pipeline_stages`: the stages of one pipeline
- `plan_search`: stages, micro-batches and strategies with the shortest iteration
- `rules_of_thumb`: Megatron's, to compare with
- `placing`: plans as placements of several shapes
- `plan_file`: a plan as a file; `exports`: in other systems' terms
"""
