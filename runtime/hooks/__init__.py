"""The clocks of a plan in a training loop that someone else wrote: torchtitan, Megatron-LM, Lightning, torch.

It knows what a loop calls, and asks the controller of `runtime.clocks.speed` right before each computation.
It imports none of those frameworks.

Read `watching` (what tells when a module or a stage of torch computes), `lightning` (the hooks of a callback)
and `plan_clocks`, which is `schedsearch.clocks`.
"""
