"""Figures of schedules, frontiers, plans and clusters. The only package that imports matplotlib.

- `canvas`: axes, rows, colours, legends and files that all share
- `timeline`, `memory`: a schedule over time; `frontier`: energy against time
- `perfetto`: schedules and traces beside each other, in a file for ui.perfetto.dev
- `panels`: curves side by side; `bars`: bars in groups
- `causes`: the parts of a measured iteration; `predicted`: predictions against measurements
- `comparison`: timelines above each other, of schedules or of powers
- `plan`: stages over GPUs, and how these share the layers
- `cluster`: jobs and GPUs of a cluster over time, and policies under load
"""
