"""Memory tensor by tensor, and the rules by which training frameworks hold each tensor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from placements.block import PlacementError
from placements.forms.tables import csv_records, csv_rows

MemoryKind = Literal["weights", "gradients", "optimizer", "kept", "backward", "buffer"]
"""Kinds of tensors: states; kept by each micro-batch; held only during a backward; or held once, for all
layers with an equal tensor."""

STATE_KINDS: tuple[MemoryKind, ...] = ("weights", "gradients", "optimizer")
"""Kinds that stand for all of the training."""


class MemoryItem(NamedTuple):
    """A tensor, or several of one name: bytes on each GPU, of one micro-batch where kept, and their rule."""

    kind: MemoryKind
    name: str
    num_bytes: float
    rule: str


class Loss(NamedTuple):
    """Bytes that a loss holds for each logit: from the forward to the backward, and more in its backward."""

    kept_bytes: float
    backward_bytes: float


_TABLES = Path(__file__).parents[1]

LOSSES = {
    row.text("name"): Loss(row["kept_bytes"].number(), row["backward_bytes"].number())
    for row in csv_rows(_TABLES / "losses.csv", "loss", PlacementError)
}
"""Losses by the kind that a framework names, from a table with what each holds."""

WORKSPACES_MIB = {
    row.text("name"): (row["before_hopper_mib"].number(), row["mib"].number())
    for row in csv_rows(_TABLES / "workspaces.csv", "workspace", PlacementError)
}
"""Workspaces of libraries on GPUs before Hopper, and on later ones, which have FP8, from a table likewise."""


@dataclass(frozen=True)
class Framework:
    """Memory and kernels of a training framework besides states and activations.

    Attributes:
        has_placeholders: A backward returns an empty gradient for each weight, since the product adds up into
            the 32-bit one; one for each shape is kept for all layers.
        has_temporaries: Gradients between the products of a backward are counted.
        loss: Kind of loss, a key of `LOSSES`.
        gradient_passes: How often a step reads or writes all gradients, besides the update.
        kernels_per_weight: Kernels of a step for each matrix: its gradient goes to the optimizer's share, and
            the new weight comes back.
        workspaces: Libraries whose workspaces for products are held, a key of `WORKSPACES_MIB`, or None.
        has_score_buffer: Scores of an attention that is not flash are computed in a buffer that stays, as
            Megatron-LM does without Transformer Engine.
        scatters_gradients: ZeRO-2 reduces and scatters gradients in each micro-batch, as FSDP does; otherwise
            they stand whole while several micro-batches add to them. Embedding and output layer, which are in
            no module of their own, stay whole with ZeRO-3.
        casts_weights: With ZeRO-3 weights are cast from the master weights when they are gathered; otherwise
            shares in 16 bits stand beside these.
        host_us: Time of the host for each kernel, in 1e-6 seconds.
        is_eager: Norms, rotations and gates are torch's own operations unless they are compiled.
    """

    name: str
    has_placeholders: bool = False
    has_temporaries: bool = True
    loss: str = "plain"
    gradient_passes: float = 0.0
    kernels_per_weight: int = 0
    workspaces: str | None = None
    has_score_buffer: bool = False
    scatters_gradients: bool = False
    casts_weights: bool = False
    host_us: float = 0.0
    is_eager: bool = False


_ROWS = csv_records(_TABLES / "frameworks.csv", "framework", PlacementError, Framework, others=True)
FRAMEWORKS = {framework.name: framework for _, framework in _ROWS}
"""Frameworks by name, from a table with the sources of their figures."""

PLAIN = FRAMEWORKS["plain"]
"""States and activations alone (Korthikanti et al., 2022, Sec. 4)."""
