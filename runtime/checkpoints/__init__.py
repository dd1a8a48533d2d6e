"""A training's state in files of `torch.distributed.checkpoint`, for any number of devices to go on from.

Every tensor is written under a name and a place in the whole parameter, so that it can be read by other
devices, cut otherwise. It knows neither schedules nor iterations.

Read `training_state` (the items of a state, and the place of each), `optimizer_states` (optimizers as states
by parameter), `manifest` (whole checkpoints, and the run of each), `shards` (items in the words of
`torch.distributed.checkpoint`), `saving`, `loading`.
"""
