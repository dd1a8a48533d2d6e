"""Device 2 of 3 of v_shape, ZB-H1: 6 micro-batches (or any number from 3 on).
Made with schedsearch 0.1.0, torch 2.13.0.

    0 | F.0 F.1 F.2 .   .   I.0 W.0 F.3 I.1 W.1 F.4 I.2 W.2 F.5 I.3 W.3 I.4 W.4 I.5 W.5
    1 | .   F.0 F.1 .   I.0 F.2 I.1 W.0 F.3 I.2 W.1 F.4 I.3 W.2 F.5 I.4 W.3 I.5 W.4 W.5
  > 2 | .   .   F.0 I.0 F.1 I.1 F.2 I.2 W.0 F.3 I.3 W.1 F.4 I.4 W.2 F.5 I.5 W.3 W.4 W.5
    a column: 1 ms; .3: micro-batch 3

Start all devices, from the folder above this one, on one node with
    torchrun --nproc-per-node 3 -m runtime.launch zero_bubble
or on N nodes with G devices each (N x G = 3), on node R from 0 on, node 0 being HOST, with
    torchrun --nnodes N --node-rank R --nproc-per-node G --master-addr HOST -m runtime.launch zero_bubble

You may change the lines below. Whether they are still safe tells
    python -m runtime.check zero_bubble
Model and placement are in job.json beside this script.
"""

from runtime.device import Device, run

JOB = "445af31a6d50"  # the hash of job.json


def iteration(device: Device, num_micro_batches: int) -> None:
    """Run one iteration of this device, in this order.

    A transfer names the block that makes a tensor, the block that takes it, and their micro-batch.
    It does not wait; the block that takes it does. To prefetch is to receive ahead of other blocks.
    """
    # Warmup.
    device.receive("F1", "F2", 0, source=1)
    device.forward("F2", 0)
    device.prefetch("F1", "F2", 1, source=1)
    device.backward_input("I2", 0)
    device.send("I2", "I1", 0, target=1)
    device.forward("F2", 1)
    device.backward_input("I2", 1)
    device.receive("F1", "F2", 2, source=1)
    device.send("I2", "I1", 1, target=1)
    # Repetend: one micro-batch per round.
    for n in range(num_micro_batches - 3):
        device.forward("F2", n + 2)
        device.backward_input("I2", n + 2)
        device.send("I2", "I1", n + 2, target=1)
        device.backward_weight("W2", n)
        device.receive("F1", "F2", n + 3, source=1)
    # Cooldown.
    device.forward("F2", num_micro_batches - 1)
    device.backward_input("I2", num_micro_batches - 1)
    device.send("I2", "I1", num_micro_batches - 1, target=1)
    device.backward_weight("W2", num_micro_batches - 3)
    device.backward_weight("W2", num_micro_batches - 2)
    device.backward_weight("W2", num_micro_batches - 1)


def train() -> None:
    """Train, beside the processes of the other devices."""
    run(iteration, job=JOB, script=__file__)


if __name__ == "__main__":
    train()
