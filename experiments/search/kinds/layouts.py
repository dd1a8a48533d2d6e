"""The layout of a training framework with its layers' times."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.options import require_path
from experiments.search.kinds.kind import Built, PlacementKind, power_model
from placements import Profile
from placements.forms.meaning import REQUIRED, Verbatim, option
from placements.hardware import Gpu


@dataclass(frozen=True, kw_only=True)
class LayoutPlacement(PlacementKind):
    """The `placement` group of a training framework's job, and of its layers."""

    kind: str = option("", "set by placement=")
    layers: Verbatim | None = option(
        REQUIRED, "CSV of the model's layers: layer,kind,forward_ms,backward_ms,activation_mib,weight_mib"
    )
    memory_mib: float | None = option(None, "memory of each device; null: no limit", "MiB", above=0)
    transfer_ms: float = option(
        0.0, "time from the end of a block to where its output is on the next device", "ms", min=0
    )
    path: Verbatim | None = option(REQUIRED, "file with the job's flags, or a script with them")

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the layout's stages on their devices: a V-shape, or a loop with several on each."""
        from placements.stages.layout_stages import place_layout
        from placements.trainers.files import read_any
        from placements.trainers.layers import read_layers

        layers = read_layers(require_path("placement.layers", self.layers))
        layout = read_any(require_path("placement.path", self.path)).layout
        placement = place_layout(layout, layers, self.memory_mib, self.transfer_ms).placement
        source = f"layers of {self.layers}, layout of {self.path}"
        return Built(placement, source, power_model(gpu), layout=layout)


@dataclass(frozen=True, kw_only=True)
class MegatronPlacement(LayoutPlacement):
    """The `placement` group of a Megatron-LM command line."""

    kind: str = option("megatron", "set by placement=")


@dataclass(frozen=True, kw_only=True)
class TorchtitanPlacement(LayoutPlacement):
    """The `placement` group of the flags of a torchtitan job."""

    kind: str = option("torchtitan", "set by placement=")
