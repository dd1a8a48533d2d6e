"""Plans as placements, in several shapes.

- `planned_placement`: a device for each stage; waves and loops of a plan; vocabularies on all devices
- `shared_layers`: layers that all GPUs share beside chains of stages
- `trunk_search`: plans whose vocabulary is on all GPUs
- `gpt`: a GPT on equal devices
"""
