"""Device 0 of 2 of m_shape, 1F1B+: 4 micro-batches (or any number from 1 on).
Made with schedsearch 0.1.0, torch 2.13.0.

  > 0 | E.0 F.0 .   E.1 F.1 .   .   B.0 B.0 B.0 ... B.2  EB.2 .    .    .    B.3  B.3  B.3  EB.3
    1 | E.0 .   F.0 E.1 B.0 B.0 B.0 F.1 .   .   ... .    EB.2 B.3  B.3  B.3  .    .    .    EB.3
    a column: 1 ms; .3: micro-batch 3

Start all devices, from the folder above this one, on one node with
    torchrun --nproc-per-node 2 -m runtime.launch m_shape
or on N nodes with G devices each (N x G = 2), on node R from 0 on, node 0 being HOST, with
    torchrun --nnodes N --node-rank R --nproc-per-node G --master-addr HOST -m runtime.launch m_shape

You may change the lines below. Whether they are still safe tells
    python -m runtime.check m_shape
Model and placement are in job.json beside this script.
"""

from runtime.device import Device, run

JOB = "bf9db4a9b8ec"  # the hash of job.json


def iteration(device: Device, num_micro_batches: int) -> None:
    """Run one iteration of this device, in this order.

    A transfer names the block that makes a tensor, the block that takes it, and their micro-batch.
    It does not wait; the block that takes it does. To prefetch is to receive ahead of other blocks.
    """
    # Warmup.
    device.forward("E", 0)  # on all devices
    device.forward("F0", 0)
    device.send("F0", "F1", 0, target=1)
    # Repetend: one micro-batch per round.
    for n in range(num_micro_batches - 1):
        device.forward("E", n + 1)  # on all devices
        device.forward("F0", n + 1)
        device.send("F0", "F1", n + 1, target=1)
        device.receive("B1", "B0", n, source=1)
        device.backward("B0", n)
        device.send("B0", "EB", n, target=1)
        device.backward("EB", n)  # on all devices
    # Cooldown.
    device.receive("B1", "B0", num_micro_batches - 1, source=1)
    device.backward("B0", num_micro_batches - 1)
    device.send("B0", "EB", num_micro_batches - 1, target=1)
    device.backward("EB", num_micro_batches - 1)  # on all devices


def train() -> None:
    """Train, beside the processes of the other devices."""
    run(iteration, job=JOB, script=__file__)


if __name__ == "__main__":
    train()
