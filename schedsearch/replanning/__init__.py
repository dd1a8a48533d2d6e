"""A new order for a data-parallel job that lost a device, or has a slow one.

In the order in which to read:

- `replicated_job`: pipelines side by side, what they lost, which copies micro-batches may take, and a bound
- `division`: one pipeline's stages divided anew among the devices that it has left, by their speed
- `replan`: every way to go on, each with its time
"""
