"""The kinds of placements, each a record of its options: where blocks, their times and power come from.

- `kind`: what all of them have in common, and what they build
- `shapes`, `gpt`, `stages`, `files`: a shape, a cost model, a file of times, a placement as it was written
- `layouts`: layouts of training frameworks with the times of layers
- `planned`, `galvatron`: plans of `experiments.plan`, and of other planners
- `kinds`: all of them by name
"""
