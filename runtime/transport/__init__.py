"""How devices reach each other: messages on channels, and collectives within teams of devices.

It knows placements and torch, and neither models nor schedules. `communicators` counts the groups that a run
needs. `shards` has the collectives between the devices of one block, under autograd. `protocol` says what a
device can ask of the others, and of those of a team. `process_groups` joins processes by `torch.distributed`;
`in_memory` joins threads of one process, of which one runs at a time, for tests and for the reference that
repeats a run. `agreement` lets processes go on together or not at all; `contact` knows why one
no longer answers, and `error_lines` prints the error that ends one.
"""
