"""What Narayanan's dissertation prints: Tables 4.1 and 4.2, and other values of chapters 2 to 4.

The module computes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

VOCABULARY = 51_200
SEQUENCE_LENGTH = 2048
"""Of all models of chapter 4 (Sec. 4.5.1)."""

PEAK_TFLOPS = 312.0
"""Of an A100."""


class WeakScaling(NamedTuple):
    """A row of Table 4.1.

    Attributes:
        parameters_b: Parameters, 1e9.
        num_heads: Attention heads.
        hidden_size: Width.
        num_layers: Transformer layers.
        tensor_parallel: t.
        num_stages: p; 1 where the scanned table has a dash.
        num_gpus: n.
        batch_size: Sequences, B.
        tflops: What each GPU reaches.
        percent_of_peak: Share of `PEAK_TFLOPS`.
        pflops: What all GPUs reach together.
    """

    parameters_b: float
    num_heads: int
    hidden_size: int
    num_layers: int
    tensor_parallel: int
    num_stages: int
    num_gpus: int
    batch_size: int
    tflops: float
    percent_of_peak: float
    pflops: float


TABLE_4_1 = {
    f"{row[0]:g}b": WeakScaling(*row)
    for row in (
        (1.7, 24, 2304, 24, 1, 1, 32, 512, 137, 44, 4.4),
        (3.6, 32, 3072, 30, 2, 1, 64, 512, 138, 44, 8.8),
        (7.5, 32, 4096, 36, 4, 1, 128, 512, 142, 46, 18.2),
        (18.4, 48, 6144, 40, 8, 1, 256, 1024, 135, 43, 34.6),
        (39.1, 64, 8192, 48, 8, 2, 512, 1536, 138, 44, 70.8),
        (76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140, 45, 143.8),
        (145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148, 47, 227.1),
        (310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155, 50, 297.4),
        (529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163, 52, 410.2),
        (1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 163, 52, 502.0),
    )
}
"""The table's rows, by billions of parameters, such as ``145.6b``."""


class TrainingTime(NamedTuple):
    """A row of Table 4.2.

    Attributes:
        scheme: ZeRO-3 or PTD-P.
        parameters_b: Parameters of GPT-3, or of a model of Table 4.1.
        batch_size: Sequences.
        num_gpus: n.
        micro_batch_size: b.
        tflops: What each GPU reaches.
        days: For 300e9 tokens.
    """

    scheme: str
    parameters_b: float
    batch_size: int
    num_gpus: int
    micro_batch_size: int
    tflops: float
    days: int


TABLE_4_2 = (
    TrainingTime("ZeRO-3", 174.6, 1536, 384, 4, 144, 90),
    TrainingTime("ZeRO-3", 174.6, 1536, 768, 2, 88, 74),
    TrainingTime("ZeRO-3", 174.6, 1536, 1536, 1, 44, 74),
    TrainingTime("ZeRO-3", 529.6, 2560, 640, 4, 138, 169),
    TrainingTime("ZeRO-3", 529.6, 2240, 1120, 2, 98, 137),
    TrainingTime("ZeRO-3", 529.6, 2240, 2240, 1, 48, 140),
    TrainingTime("PTD-P", 174.6, 1536, 384, 1, 153, 84),
    TrainingTime("PTD-P", 174.6, 1536, 768, 1, 149, 43),
    TrainingTime("PTD-P", 174.6, 1536, 1536, 1, 141, 23),
    TrainingTime("PTD-P", 529.6, 2240, 560, 1, 171, 156),
    TrainingTime("PTD-P", 529.6, 2240, 1120, 1, 167, 80),
    TrainingTime("PTD-P", 529.6, 2240, 2240, 1, 159, 42),
)

TOKENS_B = 300.0
"""Of Table 4.2, 1e9."""

SHAPES = {174.6: (96, 12288), 529.6: (105, 20480)}
"""Layers and width by the billions of parameters of Table 4.2."""


class Example(NamedTuple):
    """A training that the text counts the days of: parameters and tokens in 1e9."""

    parameters_b: float
    tokens_b: float
    num_gpus: int
    tflops: float
    days: int


EXAMPLES = {
    "gpt3": Example(175.0, 300.0, 1024, 140.0, 34),
    "1t": Example(1008.0, 450.0, 3072, 163.0, 84),
}
"""Of Sec. 4.5.1, by eq. 4.4."""

_A, _B = "4x4 (A)", "2x8 (B)"

TABLE_2_2: dict[str, dict[str, tuple[tuple[int, ...], float]]] = {
    "vgg16": {_A: ((15, 1), 5.3), _B: ((15, 1), 3.0)},
    "alexnet": {_A: ((15, 1), 5.0), _B: ((15, 1), 2.0)},
    "resnet50": {_A: ((16,), 1.0), _B: ((16,), 1.0)},
    "gnmt": {"1x4 (A)": ((1,) * 4, 1.5), "3x4 (A)": ((1,) * 12, 3.0), _B: ((16,), 1.0)},
}
"""Workers of each stage on each cluster, and the speed-up over data parallelism (Table 2.2); GNMT-8."""

BATCH_SIZES_2 = {"vgg16": 64, "alexnet": 256, "resnet50": 128, "gnmt": 32}
"""Images on each worker (Sec. 2.5.1); sequences of the published profile of GNMT-8, where the text has 64."""

TABLE_6_1 = {
    "Transformer": ("Transformer (batch size 256)", ((3.3, 1.0), (3.3, 0.8))),
    "A3C": ("A3C", ((1.2, 0.4), (2.2, 0.4))),
    "CycleGAN": ("CycleGAN", ((4.5, 1.4), (9.3, 1.7))),
    "ResNet-18": ("ResNet-18 (batch size 256)", ((4.0, 1.2), (6.8, 1.2))),
    "ResNet-50": ("ResNet-50 (batch size 128)", ((3.7, 1.1), (9.6, 1.8))),
}
"""Name in the published speeds; speed and speed by dollar over a K80, on P100 and V100 (Table 6.1)."""

DATA_MOVEMENT = {
    "ResNet-50": ((("dataset", 150.0), ("model", 0.098)), (9.13, 0.006)),
    "BERT-Base": ((("dataset", 17.0), ("model", 0.408)), (0.98, 0.025)),
}
"""GB, and cost in percent of that of 160 hours of a V100 (Table 6.2)."""

SPOT_REDUCTIONS = {
    "aws": {"k80": 2.7, "v100": 3.3},
    "gcp": {"k80": 3.4, "p100": 3.4, "v100": 3.3},
    "azure": {"k80": 7.3, "p100": 8.0, "v100": 5.1},
}
"""Price on demand over the lowest spot price, of one GPU (Table 6.3)."""
