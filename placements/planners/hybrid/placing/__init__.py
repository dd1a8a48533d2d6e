"""Plans as placements, in several shapes.

- `planned_placement`: a device for each stage; waves and loops of a plan; vocabularies on all devices
- `shared_layers`: a vocabulary on all GPUs, beside a chain of stages: its cost, and the search for such plans
- `gpt`: a GPT on equal devices
"""
