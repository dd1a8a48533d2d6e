"""Throughputs of two jobs on the same GPUs, of which few were measured (dissertation, Sec. 5.3.3 and 5.6).

Reference jobs are profiled in all pairs, once. A new job is profiled beside a few of them; the rest of its
row is completed by a matrix of low rank. The row, its fingerprint, tells which reference job is most like it,
and so what it does beside other new jobs. In the order in which to read:

- `completion`: the missing entries of a matrix of low rank
- `fingerprints`: throughputs in pairs as shares of those alone, a row for each type of job
- `pairs`: fingerprints, estimated throughputs of pairs, and what changes when one is measured
- `estimating_policy`: any policy that shares GPUs, on estimates that it learns from
"""
