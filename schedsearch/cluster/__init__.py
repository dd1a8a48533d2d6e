"""Many jobs on several types of GPU: their GPUs, shares of the time, and costs.

Gavel's model (dissertation, chapter 5): a *policy* decides what share of the time each job spends in each
*configuration*; *rounds* give the jobs that time. In the order in which to read:

- `gpu_cluster`: GPUs of several types, their prices and servers
- `jobs`: training jobs, and their progress
- `demand`: jobs, and the configurations that each can run in, as arrays
- `throughputs`: how fast each type of job runs where, and the demand that follows
- `allocation`: the share of the time of each configuration, and its independent check
- `policies`: from a demand to an allocation
- `rounds`: who runs in the next round, and on which GPUs
- `generator`: jobs drawn at random
- `simulator`: the jobs of a trace, round after round
- `prices`: prices of GPUs over time at several clouds, and the savings of choosing and moving
- `inputs`: throughputs, traces and decisions as files
"""
