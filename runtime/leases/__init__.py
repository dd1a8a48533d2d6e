"""Jobs of a cluster that really run, in rounds with leases (dissertation, Sec. 5.6): no torch.

- `lease`: messages between scheduler and job, as files of the job's folder
- `iterator`: in a job's training loop: steps of the lease, renewal, checkpoints
- `engine`: starts and ends jobs on workers; processes of this machine
- `leased_run`: the rounds of a simulation with real jobs behind them
"""
