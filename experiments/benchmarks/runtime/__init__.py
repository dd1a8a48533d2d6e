"""Measure the runtime: ``python -m experiments.benchmarks.runtime`` (see README).

Read `cases`, `measuring`, then what they run: `processes` (forked devices), `sleeping` (blocks that sleep,
real transfers), `beside_torch` (torch's own runtime), `one_device` (what calls and blocks cost), `on_gpu`
(pipelines on one GPU), `memory` (what processes hold), `clock_costs` (what requests of clocks cost), and
`communicators` (how long processes take to reach each other).
"""
