"""The hooks of a callback of Lightning, whose batches are the micro-batches of a plan for one device."""

from __future__ import annotations

from typing import Any

from runtime.program.calls import ScriptError


class LightningHooks:
    """Methods that Lightning calls; mixed with its ``Callback``, which has all others."""

    def __init__(self, clocks: Any) -> None:
        """Keep the `runtime.hooks.plan_clocks.PlanClocks` to ask."""
        super().__init__()
        self._clocks = clocks

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin, if the plan is for as many micro-batches as gradients are accumulated over."""
        wanted = self._clocks.num_micro_batches
        if trainer.accumulate_grad_batches != wanted:
            raise ScriptError(
                f"accumulate_grad_batches: is {trainer.accumulate_grad_batches}, and the plan is for "
                f"{wanted} micro-batches; set it to {wanted}, or make a plan for yours"
            )
        self._clocks.__enter__()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin an iteration; the last one of an epoch may be short."""
        self._clocks.begin_iteration()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Ask for the clock of a forward."""
        self._clocks.set_speed("forward")

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """Ask for the clock of a backward."""
        self._clocks.set_speed("backward")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Give the clock back."""
        self._clocks.__exit__(None, None, None)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Give the clock back."""
        self._clocks.__exit__(None, None, None)
