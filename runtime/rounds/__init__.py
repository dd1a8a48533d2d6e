"""Jobs of a cluster that really run, in rounds with leases (dissertation, Sec. 5.6), on Ray: no torch.

- `iterator`: in a job's training loop: steps of a lease, a checkpoint at its end, the next lease
- `real_rounds`: the rounds of a simulation with real jobs behind them, in placement groups of Ray
"""
