"""Jobs that bring our own results: what a model does on GPUs comes from its plan, schedule and frontier.

In the order in which to read:

- `frontier_points`: the few plans of a frontier among which a cluster's policy chooses
- `planned_frontier`: from a model and GPUs of one type to the frontier of its best plan
- `planned_throughputs`: from such frontiers to a table of throughputs
- `drawn_jobs`: a trace of such models, drawn at random
- `energy_over_time`: what a simulated cluster draws
- `study`: a trace under several policies, each beside its baseline
"""
