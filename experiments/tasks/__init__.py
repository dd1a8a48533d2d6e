"""What the commands do, one file each: options in, steps in their order, files out.

- `search`, then `frontier`, then `run`, each of which does more
- `profile`, `check`, `compare`, `plan`, `reproduce`, `predict` and `prices` stand alone
"""
