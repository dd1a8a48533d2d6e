"""Device 2 of 3 of v_shape, GPipe: 4 micro-batches (or any number from 1 on).
Made with schedsearch 0.1.0, torch 2.13.0.

    0 | F.0 F.1 F.2 F.3 .   .   .   .   .   .   .   .   B.0 B.0 B.0 B.1 B.1 B.1 B.2 B.2 B.2 B.3 B.3 B.3
    1 | .   F.0 F.1 F.2 F.3 .   .   .   .   B.0 B.0 B.0 B.1 B.1 B.1 B.2 B.2 B.2 B.3 B.3 B.3 .   .   .
  > 2 | .   .   F.0 F.1 F.2 F.3 B.0 B.0 B.0 B.1 B.1 B.1 B.2 B.2 B.2 B.3 B.3 B.3 .   .   .   .   .   .
    a column: 1 ms; .3: micro-batch 3

Start all devices, from the folder above this one, on one node with
    torchrun --nproc-per-node 3 -m runtime.launch gpipe
or on N nodes with G devices each (N x G = 3), on node R from 0 on, node 0 being HOST, with
    torchrun --nnodes N --node-rank R --nproc-per-node G --master-addr HOST -m runtime.launch gpipe

You may change the lines below. Whether they are still safe tells
    python -m runtime.check gpipe
Model and placement are in job.json beside this script.
"""

from runtime.device import Device, run

JOB = "98a608234677"  # the hash of job.json


def iteration(device: Device, num_micro_batches: int) -> None:
    """Run one iteration of this device, in this order.

    A transfer names the block that makes a tensor, the block that takes it, and their micro-batch.
    It does not wait; the block that takes it does. To prefetch is to receive ahead of other blocks.
    """
    # Loop: one micro-batch per round.
    for n in range(num_micro_batches):
        device.receive("F1", "F2", n, source=1)
        device.forward("F2", n)
    # Loop: one micro-batch per round.
    for n in range(num_micro_batches):
        device.backward("B2", n)
        device.send("B2", "B1", n, target=1)


def train() -> None:
    """Train, beside the processes of the other devices."""
    run(iteration, job=JOB, script=__file__)


if __name__ == "__main__":
    train()
