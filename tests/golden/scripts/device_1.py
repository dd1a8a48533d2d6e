"""Device 1 of 2 of v_shape, 1F1B: exactly 4 micro-batches (each has clocks of its own).
Made with schedsearch 0.1.0, torch 2.13.0.

    0 | F.0 F.1 .   .   .   B.0 B.0 B.0 F.2 B.1 B.1 B.1 F.3 B.2 B.2 B.2 .   B.3 B.3 B.3
  > 1 | .   F.0 B.0 B.0 B.0 F.1 B.1 B.1 B.1 F.2 B.2 B.2 B.2 F.3 B.3 B.3 B.3 .   .   .
    a column: 1 ms; .3: micro-batch 3

Start all devices, from the folder above this one, on one node with
    torchrun --nproc-per-node 2 -m runtime.launch v_shape
or on N nodes with G devices each (N x G = 2), on node R from 0 on, node 0 being HOST, with
    torchrun --nnodes N --node-rank R --nproc-per-node G --master-addr HOST -m runtime.launch v_shape

You may change the lines below. Whether they are still safe tells
    python -m runtime.check v_shape
Model and placement are in job.json beside this script.
"""

from runtime.device import Device, run

JOB = "36539ac30f2c"  # the hash of job.json


def iteration(device: Device, num_micro_batches: int) -> None:
    """Run one iteration of this device, in this order.

    A transfer names the block that makes a tensor, the block that takes it, and their micro-batch.
    It does not wait; the block that takes it does. To prefetch is to receive ahead of other blocks.
    """
    # Warmup.
    device.receive("F0", "F1", 0, source=0)
    device.forward("F1", 0, clock_mhz=1410)
    device.prefetch("F0", "F1", 1, source=0)
    device.backward("B1", 0, clock_mhz=1410)
    device.send("B1", "B0", 0, target=0)
    # Repetend: one micro-batch per round.
    for n in range(1, 3):
        device.forward("F1", n, clock_mhz=1410)
        device.backward("B1", n, clock_mhz=1410)
        device.receive("F0", "F1", n + 1, source=0)
        device.send("B1", "B0", n, target=0)
    # Cooldown.
    device.forward("F1", 3, clock_mhz=1410)
    device.backward("B1", 3, clock_mhz=1410)
    device.send("B1", "B0", 3, target=0)


def train() -> None:
    """Train, beside the processes of the other devices."""
    run(iteration, job=JOB, script=__file__)


if __name__ == "__main__":
    train()
