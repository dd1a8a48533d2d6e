"""Published tables made again, each with the published figures beside ours.

- `item`: a table or figure that can be made again, and what is claimed of it
- `measured`: published measurements, and what our schedules of the same times give
- `galvatron_published`: what Galvatron-BMW's paper says of three rows
- `galvatron_tables`: its cells from the constants of 2022
- `galvatron_cells`: what the paper says of all rows and tables
- `galvatron_trends`: these rows by our planner; `trend_agreement`: beside the paper's
- `large_vocabulary`: Tessel's models in a V-shape, and with the vocabulary on all GPUs
"""
