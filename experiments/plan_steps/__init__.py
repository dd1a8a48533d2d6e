"""What a plan needs besides a model by name, and what another planner makes of it.

- `profiled_inputs`: model, cluster and costs of a measured profile
- `pipedream_plan`: a profile of nodes planned as PipeDream does, and written
"""
