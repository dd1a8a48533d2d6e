"""Figures of training beside each other: tokens/s of a GPU, model FLOPs utilisation, energy of a token.

The module does not know how long an iteration takes, and of what its energy is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from placements.hardware import Gpu
from placements.models.chain import ModelShape
from placements.models.transformer import TransformerLayer


class TrainingFigures(NamedTuple):
    """Training figures of an iteration; None where one is not known, or there are no tokens.

    Attributes:
        tokens_per_s_per_gpu: Throughput, by the GPUs that are used.
        mfu_percent: Share of the GPUs' peak that `model_flops` take.
        j_per_token: Energy of all GPUs by tokens.
        tokens_per_kwh: Tokens by the same energy.
    """

    tokens_per_s_per_gpu: float | None = None
    mfu_percent: float | None = None
    j_per_token: float | None = None
    tokens_per_kwh: float | None = None

    @property
    def known(self) -> dict[str, float]:
        """The figures that are known, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def __str__(self) -> str:
        """Return the known figures in words.

        >>> str(TrainingFigures(905.2, 44.04, 0.7091, 5076858.0))
        '905.2 tokens/s/GPU, MFU 44.0 %, 0.7091 J/token, 5,076,858 tokens/kWh'
        """
        forms = ("{:,.1f} tokens/s/GPU", "MFU {:.1f} %", "{:.4g} J/token", "{:,.0f} tokens/kWh")
        known = ((form, value) for form, value in zip(forms, self, strict=True) if value is not None)
        return ", ".join(form.format(value) for form, value in known)


@dataclass(frozen=True)
class IterationWork:
    """Work of an iteration, whatever its schedule.

    Attributes:
        tokens: Tokens of all samples; 0 without any, as in image models, or if not known.
        num_gpus: GPUs that are used.
        at_peak_ms: Time of the model's FLOPs at the peak of all GPUs; 0 where the model is not known.
    """

    tokens: int = 0
    num_gpus: int = 1
    at_peak_ms: float = 0.0

    @classmethod
    def of(cls, model: ModelShape, gpus: Mapping[Gpu, int], num_samples: int) -> IterationWork:
        """Return the work of some samples on a number of GPUs of each kind.

        Peaks are the data sheets' of dense products in the model's precision, as in `placements.gpus`.
        """
        peak_tflops = sum(number * model.precision.peak_tflops(gpu) for gpu, number in gpus.items())
        at_peak_ms = num_samples * model_flops(model) / (peak_tflops * 1e9)
        return cls(num_samples * model.num_tokens, sum(gpus.values()), at_peak_ms)

    def figures(self, iteration_ms: float, energy_mj: float | None = None) -> TrainingFigures:
        """Return the figures of an iteration of a time, and of an energy of all GPUs where it is known."""
        mj_per_token = energy_mj / self.tokens if energy_mj and self.tokens else None
        return TrainingFigures(
            1e3 * self.tokens / (iteration_ms * self.num_gpus) if self.tokens else None,
            100 * self.at_peak_ms / iteration_ms if self.at_peak_ms else None,
            mj_per_token and mj_per_token / 1e3,
            mj_per_token and 3.6e9 / mj_per_token,
        )


UNKNOWN_WORK = IterationWork()
"""Work of an iteration of which neither tokens nor model are known; it has no figures."""


def model_flops(model: ModelShape) -> float:
    """Return the operations that a model needs for one sample, forward and backward.

    They are three times the forward's products, so 6 N + 12 l a w s for a token, of N parameters that it is
    multiplied with and l attentions of a heads, w wide, over s tokens (Chowdhery et al., 2022, App. B).
    N has the chosen experts and the output layer, but no table that is looked up. Scores that a causal
    kernel leaves out are counted, as there, in Narayanan et al. (2021, Eq. 3), torchtitan and LLM Foundry; a
    window counts its tokens alone. Nothing that is computed again is counted. Frozen weights have no
    gradients, so it is twice the forward.
    """
    runs = (
        (count, replace(layer, causal=False, imbalance=1.0) if isinstance(layer, TransformerLayer) else layer)
        for count, layer in model.chained.runs
    )
    forward = sum(count * layer.forward_flops(1) for count, layer in runs)
    return (2 if model.precision.is_frozen else 3) * forward
