"""Published measurements, and what our schedules of the same times give.

In the order in which to read:

- `measured_file`: the file that is given, and how many of its rows are taken
- `stage_times`: the measured blocks of zero bubble's runs
- `zero_bubble`: bubble rates of its schedules, and of searched ones
- `measured_iterations`: runs of pipelines whose last stage has the output layer
- `unbalanced_stages`: these in 1F1B, and what other placements of the output layer bring
- `vocabulary_parallelism`: predicted iterations beside the measured ones
- `items`: the tables
"""
