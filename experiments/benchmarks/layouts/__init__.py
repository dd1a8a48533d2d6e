"""The best layouts beside published ones, for the same devices, chunks and times of layers.

- `profiles`: times and memory of the layers of published models: modelled on H100s, or all alike
- `measuring`: how much faster ours is
- `cases`: the layouts, and what must be reached
"""
