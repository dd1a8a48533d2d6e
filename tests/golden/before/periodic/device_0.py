"""Device 0 of 2 of v_shape, 1F1B: 8 micro-batches (or any number from 2 on), plan 67814130efc4.
Made with schedsearch 0.1.0, torch 2.13.0.

Run all devices, where schedsearch is installed and from the folder above this one, with:
    torchrun --nproc-per-node 2 -m runtime.launch periodic

  > 0 | F0 F1 .  .  .  B0 B0 B0 F2 B1 B1 B1 F3 B2 B2 B2 F4 B3 B3 B3 F5 B4 B4 B4 F6 B5 B5 B5 F7 B6 B6 B6 .  B7 B7 B7
    1 | .  F0 B0 B0 B0 F1 B1 B1 B1 F2 B2 B2 B2 F3 B3 B3 B3 F4 B4 B4 B4 F5 B5 B5 B5 F6 B6 B6 B6 F7 B7 B7 B7 .  .  .
"""

from runtime.device import Device, PeriodicClocks, main

MODEL = {"name": "synthetic", "hidden_size": 4, "sequence_length": 4, "micro_batch_size": 1}
PLACEMENT = {
    "schema_version": 1,
    "name": "v_shape",
    "num_devices": 2,
    "tick_ms": 1.0,
    "blocks": [
        {"name": "F0", "kind": "F", "devices": [0], "time": 1, "memory": 1, "after": []},
        {"name": "F1", "kind": "F", "devices": [1], "time": 1, "memory": 1, "after": ["F0"]},
        {"name": "B1", "kind": "B", "devices": [1], "time": 3, "memory": -1, "after": ["F1"]},
        {"name": "B0", "kind": "B", "devices": [0], "time": 3, "memory": -1, "after": ["B1"]},
    ],
}
NUM_MICRO_BATCHES = 8
LEAST_MICRO_BATCHES = 2
MICRO_BATCHES_PER_ROUND = 1
CHANNELS = [(0, 1), (1, 0)]

FORMS = [{"dtype": "float64", "shape": (1, 4, 4), "edges": [("F0", "F1"), ("B1", "B0")]}]

CLOCK_MHZ = PeriodicClocks(
    warmup={"F0": [[1410, 1395]], "B0": [[1410]]},
    steady={"F0": [[1200]], "B0": [[1305]]},
    cooldown={"F0": [[1410]], "B0": [[1410, 1380]]},
)


def iteration(device: Device, num_micro_batches: int) -> None:
    """Run one iteration of this device's blocks."""
    # Warmup.
    device.run("F0", 0, CLOCK_MHZ.at("F0", 0, num_micro_batches))
    device.send("F0", "F1", 0, target=1)
    # Repetend: one micro-batch per round.
    for n in range(num_micro_batches - 1):
        device.run("F0", n + 1, CLOCK_MHZ.at("F0", n + 1, num_micro_batches))
        device.send("F0", "F1", n + 1, target=1)
        device.receive("B1", "B0", n, source=1)
        device.run("B0", n, CLOCK_MHZ.at("B0", n, num_micro_batches))
    # Cooldown.
    device.receive("B1", "B0", num_micro_batches - 1, source=1)
    device.run("B0", num_micro_batches - 1, CLOCK_MHZ.at("B0", num_micro_batches - 1, num_micro_batches))


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
