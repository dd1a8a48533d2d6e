"""The search of Galvatron as it was published in 2022, from the constants that it was published with.

It is there to reproduce the paper's tables (Galvatron-BMW, Sec. VII), so it decides as the original does,
defects included: each is named beside the code. For plans of one's own see `placements.planners.galvatron`.

- `strategies`: how the GPUs share a layer; `constants`: what was measured of a model
- `constants_file`: these constants as a file
- `micro_batches`: in how many a batch is cut; `layer_costs`: time and memory of layers
- `transitions`: the time between layers that are shared differently
- `stage_division`: layers divided into stages; `stage_search`: strategies for the layers of a stage
- `pipelines`: the stages of a model together; `batch_search`: the best batch and its plan
"""
