"""The layout of a training framework with its layers' times: of a command line, or of a notation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.config.options import OptionError, require_path
from experiments.search.kinds.kind import Built, PlacementKind, power_model
from placements import Profile
from placements.forms.meaning import REQUIRED, Verbatim, option
from placements.hardware import Gpu

if TYPE_CHECKING:
    from placements.trainers.layout import PipelineLayout


@dataclass(frozen=True, kw_only=True)
class TorchtitanPlacement(PlacementKind):
    """The `placement` group of the flags of a torchtitan job, which a Megatron-LM job has too."""

    kind: str = option("torchtitan", "set by placement=")
    layers: Verbatim | None = option(
        REQUIRED, "CSV of the model's layers: layer,kind,forward_ms,backward_ms,activation_mib,weight_mib"
    )
    memory_mib: float | None = option(None, "memory of each device; null: no limit", "MiB", above=0)
    transfer_ms: float = option(
        0.0, "time from the end of a block to where its output is on the next device", "ms", min=0
    )
    path: Verbatim | None = option(REQUIRED, "file with torchtitan's flags, or a script with them")

    def pipeline(self) -> tuple[PipelineLayout, str]:
        """Return the layout that the options name, and its source in words."""
        from placements.trainers.files import read_any

        return read_any(require_path("placement.path", self.path)).layout, str(self.path)

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the layout's stages on their devices: a V-shape, or a loop with several on each."""
        from placements.stages.layout_stages import place_layout
        from placements.trainers.layers import read_layers

        layers, (layout, source) = read_layers(require_path("placement.layers", self.layers)), self.pipeline()
        placement = place_layout(layout, layers, self.memory_mib, self.transfer_ms).placement
        return Built(placement, f"layers of {self.layers}, layout of {source}", power_model(gpu))


@dataclass(frozen=True, kw_only=True)
class MegatronPlacement(TorchtitanPlacement):
    """The `placement` group of a Megatron-LM command line, or of a layout in its notation."""

    kind: str = option("megatron", "set by placement=")
    path: Verbatim | None = option(None, "file with Megatron-LM's arguments, or a script with them")
    layout: Verbatim | None = option(None, "instead: a layout as of --pipeline-model-parallel-layout")
    num_devices: int | None = option(None, "beside that: pipeline ranks", min=1)

    def pipeline(self) -> tuple[PipelineLayout, str]:
        """Return the layout of the file, or the notation's, and its source in words."""
        if (self.path is None) == (self.layout is None):
            raise OptionError("placement.path: give either it, or placement.layout and placement.num_devices")
        if self.layout is None:
            return super().pipeline()
        if self.num_devices is None:
            raise OptionError("placement.num_devices: is missing; give the pipeline ranks of the layout")
        from placements.trainers.megatron_layout import check_megatron, read_notation

        found = read_notation(self.layout, self.num_devices, "placement.layout")
        return check_megatron(found, found.num_layers, found.num_mtp, "placement.layout"), self.layout
