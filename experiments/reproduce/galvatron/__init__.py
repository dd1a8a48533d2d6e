"""Galvatron-BMW's tables (Wang et al., 2023).

- `best_batches`: the methods of the tables, and the best batch of each by our planner
- `tables`: Tables II to VI, ours beside the paper's cells, and the layers of each stage in Table V's plans
"""
