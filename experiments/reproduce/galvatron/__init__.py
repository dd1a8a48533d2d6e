"""Galvatron-BMW's tables and figures (Wang et al., 2023).

- `model_sizes`: Table I
- `published_columns`: what the paper says of all rows of Tables II to VI
- `columns`: ours beside it, as rows and as CSV, and what both agree in
- `best_batches`: all rows by our planner; `trend_items`: beside the paper's, as an item
- `deepspeed`: DeepSpeed 3D in Tables II to VI
- `plans`: Table V's partitions and the strategies of Fig. 6
- `partitions`: layers divided into stages, beside Fig. 4
- `search_times`: how long the planner searches, beside Fig. 5
- `items`: all items
"""
