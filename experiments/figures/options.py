"""Options of figures of papers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.config.declaring import Command
from placements.meaning import option


@dataclass(frozen=True)
class SweepOptions:
    """The config of `experiments.bubble_by_in_flight`, and what both figures of the bubble have in common."""

    stages: str | None = option(
        None,
        "a model of yours instead of unit times, as for experiments.compare; num_devices is then its own",
    )
    shapes: list[Any] = option(
        ["v_shape", "x_shape", "m_shape", "nn_shape", "k_shape"], "shapes of placements"
    )
    num_devices: int = option(4, "devices of each placement")
    max_in_flight: int | None = option(
        None, "micro-batches at which the curves end; null: 3 more than the number of devices"
    )
    tessel_time_limit_s: float | None = option(
        None,
        "time limit of Tessel's search for each shape, in s; null: 90, and with stages no search by Tessel",
    )
    work_limit: float = option(
        20, "work limit of our search for each shape, in units of about 1 s of one core"
    )
    solver: str = option("portfolio", "solver of our search: z3 | cpsat | portfolio")
    seed: int = option(0, "seed of the solvers")
    num_processes: int | None = option(None, "number of processes; null: as many as processors")
    cache_dir: str | None = option(None, "directory in which results are kept for later runs; null: none")


@dataclass(frozen=True)
class MemorySweepOptions(SweepOptions):
    """The config of `experiments.bubble_by_memory`."""

    memories: list[Any] | None = option(
        None,
        "memories per device, as [3, 4, 5], of stages in MiB; null: from the minimum to more than enough",
    )
    max_in_flight: int | None = option(
        None,
        "most micro-batches that Tessel's repetends span (its N_R); null: 2 more than the number of devices",
    )
    max_micro_batches_per_repetend: int = option(3, "largest number of micro-batches in our repetends")
    tessel_time_limit_s: float | None = option(
        None,
        "time limit of Tessel's search for each shape and memory, in s; null: 35, and with stages no "
        "search by Tessel",
    )
    work_limit: float = option(
        10, "work limit of our search for each shape and memory, in units of about 1 s of one core"
    )


@dataclass(frozen=True)
class TransferSweepOptions:
    """The config of `experiments.time_by_transfer`."""

    placements: list[Any] = option(
        ["gpt", "m_shape", "nn_shape", "v_shape", "x_shape", "k_shape"],
        "gpt: GPT-11B as an M-shape, from its cost model",
    )
    num_devices: int = option(4, "devices of each placement")
    num_micro_batches: int = option(32, "micro-batches of an iteration")
    memory: int | None = option(
        None, "memory of each device of a shape; null: 2 more than the number of devices"
    )
    transfers: list[Any] = option(
        [0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5], "times of a transfer, as shares of the first stage's forward"
    )
    receive_ahead: int = option(2, "number of blocks of its device by which a receive may be posted early")
    gpu: str = option("a100", "GPU of the model gpt")
    work_limit: float = option(20, "work limit of each search, in units of about 1 s of one core")
    solver: str = option("portfolio", "z3 | cpsat | portfolio")
    seed: int = option(0, "seed of the solvers")
    num_processes: int | None = option(None, "number of processes; null: as many as processors")


COMMANDS = (
    Command(
        "bubble_by_memory",
        "Draw the bubble by memory (Tessel, Fig. 12).",
        MemorySweepOptions,
        task="experiments.figures.bubble_by_memory",
    ),
    Command(
        "bubble_by_in_flight",
        "Draw the bubble by micro-batches in flight (Fig. 11).",
        SweepOptions,
        task="experiments.figures.bubble_by_in_flight",
    ),
    Command(
        "time_by_transfer",
        "Draw iteration time by transfer time (Tessel, Fig. 17).",
        TransferSweepOptions,
        task="experiments.figures.time_by_transfer",
    ),
)
