"""Files of throughputs, traces and decisions: a mistake is one line with the file, the place and the remedy.

In the order in which to read:

- `cells`: numbers within limits, and dates
- `throughput_file`: throughputs by type of job and GPU: Gavel's JSON, and a CSV table of one's own; and
  the types from which jobs are generated
- `trace_file`: the jobs of a trace: Gavel's two forms, and CSV with our own columns or those of public traces
- `decision_file`: one decision as JSON: jobs, throughputs and workers
"""
