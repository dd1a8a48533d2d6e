"""Published measurements, and our schedules of the same times.

- `zero_bubble`: the measured blocks of its runs, bubble rates of its schedules, and of searched ones
- `vocabulary_parallelism`: iterations of pipelines whose last stage has the output layer
"""
