"""Galvatron-BMW's tables and figures (Wang et al., 2023).

- `published_columns`: what the paper says of all rows of Tables II to VI; `cell_rows`: rows of an item
- `search_2022`: Galvatron's search as it was published
- `published_cells`: three rows of Tables II and III with the batches of the search of 2022
- `constant_tables`: these cells from the constants of 2022; `constant_items`: as items
- `best_batches`: all rows by our planner; `trend_agreement`: beside the paper's; `trend_items`: as an item
- `partitions`: layers divided into stages, beside Fig. 4
- `search_times`: how long the planner searches, beside Fig. 5
- `items`: all items
"""
