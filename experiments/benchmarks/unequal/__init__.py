"""One batch of micro-batches that differ, beside the orders that people use.

- `batches`: sequences of log-normal lengths with the times of measured layers, and flow shops
- `measuring`: what a search reaches, beside hand-made schedules in arrival order and sorted
- `slices`: long sequences cut into slices, beside orders by hand
- `losses`: lost devices of pipelines side by side, every way to go on
- `cases`: what must be reached
"""
