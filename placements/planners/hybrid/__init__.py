"""Plans of layers over GPUs in several kinds of parallelism at once, searched for a model on a cluster.

- `plan`: a plan, and its rules
- `decision_trees`: the ways in which GPUs can share a layer
- `stage_tables`: costs of each way, for the search inside a stage; `shape_costs`: by the layers' shapes;
  `profiled`: by measured profiles
- `plan_options`: options and results of a search; `search`: the search itself
- `placing`: plans as placements of several shapes
- `uniform`: plans as training frameworks are configured, by degrees
- `plan_file`: a plan as a file
"""
