"""Galvatron-BMW's tables and figures (Wang et al., 2023).

- `best_batches`: the methods of the tables, and the best batch of each by our planner
- `tables`: Tables II to VI, ours beside the paper's cells
- `plans`: Table V's partitions and the strategies of Fig. 6
- `partitions`: layers divided into stages, beside Fig. 4
- `search_times`: how long the planner searches, beside Fig. 5
"""
