"""Pictures of schedules and of what is found of them. The only room that knows matplotlib.

- `canvas`: axes, rows, legends and files that all share
- `timeline`, `memory`: a schedule over time; `frontier`: energy against time
- `panels`: curves side by side; `bars`: bars in groups; `comparison`: schedules above each other
- `power`: timelines whose colours are powers
- `prices`: prices over time
- `plan`: stages over GPUs, and how these share the layers
"""
