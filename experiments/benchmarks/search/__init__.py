"""Measure what the search must reach: ``python -m experiments.benchmarks.search`` (see README).

Read `cases` (what is known of each placement, and what must be reached), `measuring` (how), `real_ratios`
(block times of GPTs on three GPUs), `real_times` (measured times and many devices, of the instance library),
`random_placements` (two hundred from seeds, beside an earlier version), `ablation` (what each strategy is
worth on the instance library).
"""
