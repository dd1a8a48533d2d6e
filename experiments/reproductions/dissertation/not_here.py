"""Figures of chapters 2 to 4 that cannot be made without GPUs or data that are not public, and why."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.reproductions.item import CaseOptions, Claim, Item, Row, chosen_cases

_TRAINING = "Accuracies by epoch or hour need the data sets, and days on the GPUs of 2018"
_STALLS = "Stalls of PyTorch 1.1 in the clouds of 2018, whose machines and network cannot be had"
_PROFILES = (
    "Measured throughputs on V100s; the profiles behind them are not printed, and times from data sheets do "
    "not give the difference between two partitions or systems"
)

FIGURES: dict[str, tuple[str, str]] = {
    "2.1": ("Stalls of data-parallel training by servers", _STALLS),
    "2.9": ("Accuracy by time, VGG-16 on 16 GPUs", _TRAINING),
    "2.10": ("Accuracy by epoch on 16 GPUs", _TRAINING),
    "2.11": ("Stalls of data-parallel training of GNMT-8 in fp16 and fp32", _STALLS),
    "2.12": ("Accuracy by epoch with LARS", _TRAINING),
    "2.13": ("PipeDream and pipelines without it on four GPUs", _PROFILES),
    "2.14": ("Real and predicted throughput of VGG-16 with 16 workers", _PROFILES),
    "2.17": ("Inputs in flight, throughput and memory of GNMT-8", _PROFILES),
    "3.5": (
        "Loss of BERT and GPT with double-buffered weights",
        "Pre-training needs weeks of GPUs and the data",
    ),
    "3.6": ("Throughput of 2BW and other systems, GPT", _PROFILES),
    "3.8": ("Throughput of two configurations of 2BW by batch", _PROFILES),
    "3.9": (
        "Largest model by depth of the pipeline",
        "What fits was measured; neither the models' widths nor what the optimizer keeps is in the text, and "
        "the closed forms of Sec. 3.2 leave it out",
    ),
    "3.10": ("Throughput of 2BW and other systems, BERT", _PROFILES),
    "3.12": ("Recomputation and micro-batch sizes with 2BW", _PROFILES),
    "4.7": (
        "Throughput of a GPU by micro-batch size",
        "How much faster kernels of larger matrices are was measured on an A100; the models here take a "
        "share of the peak that is the same for all sizes",
    ),
}
"""Title and reason by number."""


def _no_cases(options: CaseOptions) -> Sequence[str]:
    return chosen_cases([], options.only)


def _no_rows(_: CaseOptions, __: str) -> Sequence[Row]:
    return []


NOT_HERE_ITEMS = tuple(
    Item(
        f"dissertation_figure{number.replace('.', '_')}",
        f"Narayanan's dissertation, Fig. {number}",
        title,
        Claim.NOT_HERE,
        CaseOptions,
        CaseOptions(),
        _no_cases,
        _no_rows,
        because=because,
    )
    for number, (title, because) in FIGURES.items()
)
