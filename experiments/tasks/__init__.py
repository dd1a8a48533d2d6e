"""What the commands do, one file each: options in, steps in their order, files out.

- `search`, then `frontier`, then `run`, each of which does more
- `pipedream_plan`: what `plan` does with PipeDream's planner
- `profile`, `check`, `compare`, `plan`, `reproduce` and `predict` stand alone
"""
