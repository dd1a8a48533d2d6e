"""Published tables made again, each with the published figures beside ours.

- `galvatron_published`: what Galvatron-BMW's paper says
- `galvatron_tables`: its cells from the constants of 2022
"""
