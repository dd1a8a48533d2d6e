"""Device 0 of 2 of m_shape, 1F1B+: 4 micro-batches (or any number from 1 on), plan 0e1213a0d5c3.
Made with schedsearch 0.1.0, torch 2.13.0.

Run all devices, where schedsearch is installed and from the folder above this one, with:
    torchrun --nproc-per-node 2 -m runtime.launch m_shape

  > 0 | E0  F0  .   E1  F1  .   .   B0  B0  B0  EB0 E2  F2  .   .   B1  B1  B1  EB1 E3  F3  .   .   B2  B2  B2  EB2 .   .   .   B3  B3  B3  EB3
    1 | E0  .   F0  E1  B0  B0  B0  F1  .   .   EB0 E2  B1  B1  B1  F2  .   .   EB1 E3  B2  B2  B2  F3  .   .   EB2 B3  B3  B3  .   .   .   EB3
"""

from runtime.device import Device, main

MODEL = {"name": "synthetic", "hidden_size": 4, "sequence_length": 4, "micro_batch_size": 1}
PLACEMENT = {
    "schema_version": 1,
    "name": "m_shape",
    "num_devices": 2,
    "tick_ms": 1.0,
    "blocks": [
        {"name": "E", "kind": "F", "devices": [0, 1], "time": 1, "memory": 0, "after": []},
        {"name": "F0", "kind": "F", "devices": [0], "time": 1, "memory": 1, "after": ["E"]},
        {"name": "F1", "kind": "F", "devices": [1], "time": 1, "memory": 1, "after": ["F0"]},
        {"name": "B1", "kind": "B", "devices": [1], "time": 3, "memory": -1, "after": ["F1"]},
        {"name": "B0", "kind": "B", "devices": [0], "time": 3, "memory": -1, "after": ["B1"]},
        {"name": "EB", "kind": "B", "devices": [0, 1], "time": 1, "memory": 0, "after": ["B0"]},
    ],
}
NUM_MICRO_BATCHES = 4
LEAST_MICRO_BATCHES = 1
MICRO_BATCHES_PER_ROUND = 1
CHANNELS = [(0, 1), (1, 0)]

FORMS = [{"dtype": "float64", "shape": (1, 4, 4), "edges": [("F0", "F1"), ("B1", "B0"), ("B0", "EB")]}]


def iteration(device: Device, num_micro_batches: int) -> None:
    """Run one iteration of this device's blocks."""
    # Warmup.
    device.run("E", 0)
    device.run("F0", 0)
    device.send("F0", "F1", 0, target=1)
    # Repetend: one micro-batch per round.
    for n in range(num_micro_batches - 1):
        device.run("E", n + 1)
        device.run("F0", n + 1)
        device.send("F0", "F1", n + 1, target=1)
        device.receive("B1", "B0", n, source=1)
        device.run("B0", n)
        device.send("B0", "EB", n, target=1)
        device.run("EB", n)
    # Cooldown.
    device.receive("B1", "B0", num_micro_batches - 1, source=1)
    device.run("B0", num_micro_batches - 1)
    device.send("B0", "EB", num_micro_batches - 1, target=1)
    device.run("EB", num_micro_batches - 1)


if __name__ == "__main__":
    main(
        iteration,
        model=MODEL,
        placement=PLACEMENT,
        num_micro_batches=NUM_MICRO_BATCHES,
        channels=CHANNELS,
        forms=FORMS,
        least_micro_batches=LEAST_MICRO_BATCHES,
        micro_batches_per_round=MICRO_BATCHES_PER_ROUND,
    )
