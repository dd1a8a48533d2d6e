"""A training loop that someone else wrote: the clocks of a plan in it, and an order of ours in Megatron-LM's.

It knows what a loop calls. Clocks are asked for right before each computation, in torchtitan, Megatron-LM,
Lightning and torch. It imports none of those frameworks.

Read `watching` (hooks that tell when a module or a stage of torch computes), `plan_clocks`, which is
`schedsearch.clocks`, and `megatron` (the ``forward_backward_func``).
"""
