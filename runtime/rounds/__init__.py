"""Jobs of a cluster that really run, in rounds with leases (dissertation, Sec. 5.6), on Ray: no torch.

- `lease`: what a job and the actor beside it tell each other, as files of their node
- `iterator`: in a job's training loop: steps of the lease, a checkpoint at its end, the next lease
- `ray_jobs`: GPUs on Ray's nodes, and a job's command there, in a placement group
- `real_rounds`: the rounds of a simulation with real jobs behind them
"""
