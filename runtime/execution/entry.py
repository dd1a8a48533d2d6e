"""What a generated script imports: its `Device`, its clocks if they repeat, and `main`.

A script is a straight list of calls on a `Device`; `main` runs it for a number of iterations, each with a
gradient step at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placements.placement_file import placement_from_dict
from runtime.clocks.periodic_clocks import PeriodicClocks
from runtime.codegen.script import Script, hand_over
from runtime.execution.device import Device, TransferError
from runtime.execution.device_context import connected
from runtime.execution.run_options import RunOptions
from runtime.execution.train import run_device
from runtime.plans.plan_client import PlanSource
from runtime.program.tensor_spec import specs_from_plain
from runtime.transport.protocol import Channel

__all__ = ["Device", "PeriodicClocks", "TransferError", "main"]


def main(
    iteration: Callable[[Any, int], None],
    *,
    model: Mapping[str, Any],
    placement: Mapping[str, Any],
    num_micro_batches: int,
    channels: Sequence[Channel],
    forms: Sequence[Mapping[str, Any]] | None = None,
    least_micro_batches: int | None = None,
    micro_batches_per_round: int = 1,
    options: RunOptions | None = None,
    plans: PlanSource | None = None,
) -> None:
    """Run a script's iteration, as one process of a run.

    Args:
        iteration: The script's calls, given a `Device` and the number of micro-batches.
        model: See `runtime.models.ModelOptions`.
        placement: The placement's plain data.
        num_micro_batches: Of one iteration, unless the run asks for another number.
        channels: All (source, target) pairs that messages take, the same in every script.
        forms: The shape and type of what its messages carry; None leaves them to the model.
        least_micro_batches: The fewest that the script's loop can run; None if only `num_micro_batches`.
        micro_batches_per_round: By which numbers of micro-batches differ.
        options: How to take part; by default from the environment.
        plans: Where device 0 looks for newer clocks than the script's between iterations; by default the
            server and job of the environment, if it names them.

    Raises:
        ScriptError: The script was started in the wrong way, or does not run each of its blocks once.
        TransferError: A tensor did not arrive or could not be sent.
    """
    script = Script(
        iteration,
        model,
        placement_from_dict(placement),
        num_micro_batches,
        tuple((source, target) for source, target in channels),
        least_micro_batches,
        micro_batches_per_round,
        None if forms is None else specs_from_plain(forms, "FORMS"),
    )
    if hand_over(script):
        return
    run_device(script, options or RunOptions.from_environment(), connected, plans)
