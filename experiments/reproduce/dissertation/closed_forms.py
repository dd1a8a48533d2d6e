"""Parameters, operations and training days by the closed forms of chapter 4 (eq. 4.2 to 4.4)."""

from __future__ import annotations

from experiments.reproduce.dissertation.published import SEQUENCE_LENGTH, VOCABULARY
from placements.models.chain import ModelShape
from placements.models.zoo import decoder

_SECONDS_OF_DAY = 86_400


def parameters(num_layers: int, hidden_size: int) -> float:
    """Return the parameters of a GPT (eq. 4.3).

    >>> round(parameters(96, 12288) / 1e9, 1)
    174.6
    """
    h, layers = hidden_size, num_layers
    return 12 * layers * h**2 * (1 + 13 / (12 * h) + (VOCABULARY + SEQUENCE_LENGTH) / (12 * layers * h))


def gpt(num_layers: int, hidden_size: int, num_heads: int) -> ModelShape:
    """Return the shape of a model of chapter 4."""
    return decoder(
        "gpt",
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        vocab_size=VOCABULARY,
        sequence_length=SEQUENCE_LENGTH,
    )


def iteration_flops(num_layers: int, hidden_size: int, batch_size: int) -> float:
    """Return the operations of an iteration that computes forwards twice (eq. 4.2)."""
    h, layers, s = hidden_size, num_layers, SEQUENCE_LENGTH
    return 96 * batch_size * s * layers * h**2 * (1 + s / (6 * h) + VOCABULARY / (16 * layers * h))


def days_by_iterations(
    num_layers: int, hidden_size: int, batch_size: int, tokens: float, flops_per_s: float
) -> float:
    """Return the days of training: the time of an iteration's operations by the number of iterations."""
    iterations = tokens / (batch_size * SEQUENCE_LENGTH)
    return iterations * iteration_flops(num_layers, hidden_size, batch_size) / flops_per_s / _SECONDS_OF_DAY


def days_by_parameters(num_parameters: float, tokens: float, flops_per_s: float) -> float:
    """Return the days of training by eq. 4.4, which leaves out the attention's core and the output layer."""
    return 8 * tokens * num_parameters / flops_per_s / _SECONDS_OF_DAY
