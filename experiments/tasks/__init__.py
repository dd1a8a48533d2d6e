"""What the commands do, one file each: options in, steps in their order, files out.

- `search`, then `frontier`, then `run`, each of which does more
- `cluster_study` goes from models to a cluster over months
- `profile`, `check`, `compare`, `plan`, `reproduce`, `predict`, `prices` and `cluster` stand alone
"""
