"""Files of throughputs, traces and decisions: a mistake is one line with the file, the place and the remedy.

In the order in which to read:

- `cells`: numbers and times, each with its limits; fields that may have one of several names
- `throughput_file`: how fast each type of job runs where: Gavel's JSON, and a CSV table of one's own; and the
  types from which jobs are generated
- `trace_rows`: rows of traces: Gavel's two forms, and CSV with our own columns or those of Philly and Alibaba
- `trace_file`: the jobs of a trace with their steps, and the writers
- `decision_throughputs`: the throughputs of a decision, in any of several forms
- `decision_file`: one decision as JSON: jobs, throughputs and workers
"""
