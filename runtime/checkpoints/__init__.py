"""What a run needs to go on, in files of `torch.distributed.checkpoint`, for any number of devices.

Every tensor is written under a name and a place in the whole parameter, so that it can be read by other
devices, cut otherwise. It knows neither schedules nor iterations.

Read `training_state` (what is kept, and where each part of it belongs), `optimizer_states` (optimizers as
states by parameter), `manifest` (which folders are whole checkpoints, and of what run), `shards` (what is
written and read, in the words of `torch.distributed.checkpoint`), `saving`, `loading`.
"""
