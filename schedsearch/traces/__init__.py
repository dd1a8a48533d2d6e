"""Traces of training runs: readers of several tools' forms, all to one table of operations.

In the order in which to read:

- `table`: the table: an operation of a rank a row, with its stage, micro-batch, begin and end
- `labels`: which operation a label of a profiler's trace names: its stage, kind and micro-batch
- `labelled`: from labels, launches and kernels to operations, for all profilers
- `chrome`: traces of torch's profiler, in Chrome's JSON form
- `nsight`: traces of Nsight Systems, in the SQLite form that it exports
- `block_times`: times of the blocks of a run, from both
- `job_table`: the form of published production jobs, a table with a file of the job's degrees
"""
