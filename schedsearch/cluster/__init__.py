"""Many jobs on many kinds of GPUs: who runs where, for what share of the time, and what that costs.

Gavel's model (dissertation, chapter 5): a *policy* decides what share of the time each job spends in each
*configuration*; *rounds* give the jobs that time. In the order in which to read:

- `gpu_cluster`: GPUs of several types, their prices and servers
- `jobs`: what is asked of the cluster
- `demand`: jobs, and the configurations that each can run in, as arrays
- `throughputs`: how fast each type of job runs where, and the demand that follows
- `allocation`: the share of the time of each configuration, and its independent check
- `policies`: from a demand to an allocation
- `rounds`: who runs in the next round, and on which GPUs
- `generator`: jobs drawn at random
- `simulator`: the jobs of a trace, round after round
- `prices`: what GPUs cost over time at several clouds, and what choosing and moving saves
- `inputs`: throughputs, traces and decisions as files
"""
