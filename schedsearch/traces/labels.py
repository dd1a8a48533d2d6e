"""Labels of operations: torch's, Megatron-LM's in torch's profiler, and matches of the user's pattern.

``torch.distributed.pipelining`` labels an action ``PP:3F1``: its stage, kind and micro-batch. Schedules of
one stage a rank do not label the stage, and of those only GPipe labels its blocks at all (torch 2.13).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from schedsearch.traces.table import BLOCK_KINDS, TraceError

GROUPS = ("block", "stage", "chunk", "kind", "micro_batch")
"""Groups that a pattern may name: a block, or its kind with its stage or its chunk of the rank."""

_TORCH = re.compile(
    r"PP:(?P<stage>\d+)(?P<kind>[FBIW]|(?:SEND|RECV)_[FB]|UNSHARD|REDUCE_GRAD)(?P<micro_batch>\d+)?"
)
_ONE_STAGE = re.compile(r"(?P<kind>Forward|Backward) (?P<micro_batch>\d+)")
_MEGATRON = re.compile(r".*\bschedules\.py\(\d+\): (?P<kind>forward|backward)_step")
_MEGATRON_CHUNKS = re.compile(r".*\bschedules\.py\(\d+\): (?:forward|backward)_step_helper")
_OTHERS = re.compile(r"(?:enumerate\()?(?P<kind>Optimizer(?=\.step#)|DataLoader(?=\)#)).*")

_STEP = re.compile(r"ProfilerStep#(\d{1,9})")
_UNKNOWN = re.compile(r"PP:(?!\d+RESHARD$).*")
"""Other actions of torch, but for one that frees memory: ``PP:(0F1;3B0)OVERLAP_F_B`` is of two blocks."""

_KINDS = (
    *(("send_", "message"), ("recv_", "message"), ("unshard", "collective"), ("reduce_grad", "collective")),
    *(("optimizer", "optimizer"), ("data", "data"), ("input", "I"), ("weight", "W")),
    *(("forward", "F"), ("backward", "B"), ("fwd", "F"), ("bwd", "B")),
)
"""Kinds by a part of the word that a label has for them; the first part that fits counts."""


class Label(NamedTuple):
    """The operation that a label names; None where it does not say.

    Attributes:
        text: The label.
        kind: One of the table's kinds; empty where the label does not tell it.
        stage: Stage of the model.
        chunk: Number of the stage among its rank's, where the label has no stage.
        micro_batch: Number of the micro-batch.
        block: Name of the block, where the label has it.
    """

    text: str
    kind: str
    stage: int | None = None
    chunk: int | None = None
    micro_batch: int | None = None
    block: str | None = None

    @property
    def is_block(self) -> bool:
        """Whether the operation is a block."""
        return self.kind in BLOCK_KINDS or self.block is not None


def label_reader(pattern: str | None) -> Callable[[str], Label | None]:
    """Return a function from a text to its `Label`, or to None if it is no label.

    Args:
        pattern: A regular expression for the labels of blocks, with the groups of `GROUPS`; None for those of
            torch and Megatron-LM. Kinds are ``F``, ``B``, ``I`` and ``W``, or words such as ``forward`` and
            ``backward_weight``. Labels of optimizers and data loaders are torch's in both cases.

    Raises:
        TraceError: The pattern is wrong; from the function, a match has no known kind.
    """
    given = None if pattern is None else _compiled(pattern)

    @lru_cache(maxsize=2**16)
    def read(text: str) -> Label | None:
        if given is not None and (match := given.search(text)):
            return _label(text, match)
        plain = text.partition(", ")[0]  # NVTX ranges of torch's operators go on with ", op_id = 7"
        for known in (_OTHERS,) if given is not None else (_TORCH, _ONE_STAGE, _MEGATRON, _OTHERS):
            if match := known.fullmatch(plain):
                return _label(text, match)
        if given is None and _UNKNOWN.fullmatch(plain):
            return Label(text, "")
        if given is None and _MEGATRON_CHUNKS.fullmatch(plain):
            raise TraceError(
                f"label {text!r}: Megatron-LM ran interleaved stages, and its labels do not say which; label "
                "them, and give a pattern with the groups chunk, kind and micro_batch"
            )
        return None

    return read


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise TraceError(f"pattern: {pattern!r} is no regular expression ({error}); mend it") from None
    if unknown := [name for name in compiled.groupindex if name not in GROUPS]:
        raise TraceError(f"pattern: has an unknown group {unknown[0]!r}; the groups are {', '.join(GROUPS)}")
    if not {"block", "kind"} & compiled.groupindex.keys():
        raise TraceError("pattern: names no block; add a group (?P<kind>...) or (?P<block>...)")
    return compiled


def _label(text: str, match: re.Match[str]) -> Label:
    groups = {name: group for name, group in match.groupdict().items() if group}
    if block := groups.get("block"):
        return block_label(text, block, _number(text, "micro_batch", groups))
    word = groups.get("kind", "").lower()
    kind = word.upper() if word in [*"fbiw"] else next((kind for part, kind in _KINDS if part in word), None)
    if kind is None:
        raise TraceError(f"label {text!r}: {word!r} is no kind; let the group kind be one of F, B, I and W")
    stage, chunk, micro_batch = (_number(text, name, groups) for name in ("stage", "chunk", "micro_batch"))
    return Label(text, kind, stage, chunk, micro_batch)


def block_label(text: str, block: str, micro_batch: int | None) -> Label:
    """Return the label of a block that is named: ``B3`` is of kind B and stage 3."""
    named = re.fullmatch(r"([FBIW])(\d+)", block)
    kind, stage = (named[1], int(named[2])) if named else ("", None)
    return Label(text, kind, stage, None, micro_batch, block)


def _number(text: str, name: str, groups: dict[str, str]) -> int | None:
    if not re.fullmatch(r"\d{1,9}", groups.get(name, "0")):
        raise TraceError(f"label {text!r}: {name} {groups[name]!r} is no number; mend the group {name}")
    return int(groups[name]) if name in groups else None


def step_number(text: str) -> int | None:
    """Return the number of the iteration that torch's profiler labels so, or None."""
    match = _STEP.match(text)
    return int(match[1]) if match else None
