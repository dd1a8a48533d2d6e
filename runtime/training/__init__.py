"""From the gradients of an iteration to moved parameters: summed over copies, unscaled, clipped, applied.

It knows models and the collectives between devices, and neither schedules nor scripts. `copies` adds up the
gradients of parameters of which several devices hold a copy, while other blocks still run; `clipping` has the
norm of all gradients; `zero` lets each copy hold the optimizer's state of a part of the parameters; `update`
does all this in order, and skips it where fp16 overflows.
"""
