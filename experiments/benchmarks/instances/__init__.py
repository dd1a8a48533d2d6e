"""Named placements with the best answers known: ``python -m experiments.benchmarks instances VERB``.

The instances are in the YAML files here, one for each group; ``best_known.csv`` has the best period, makespan
and device span of each, the folder ``answers`` the schedules themselves; see README.md. Read
`instance_file` (reads the instances), `answers` (keeps the best answers and checks them) and `verbs`
(``search``, ``check``).
"""
