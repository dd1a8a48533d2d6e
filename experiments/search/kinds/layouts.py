"""The layout of a training framework with its layers' times: of a command line, or of a notation."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.options import OptionError, require_path
from experiments.search.kinds.kind import Built, PlacementKind, power_model
from placements import Profile
from placements.hardware import Gpu
from placements.meaning import REQUIRED, Verbatim, option
from placements.stages.layout_stages import place_layout
from placements.trainers.files import read_any
from placements.trainers.layers import read_layers
from placements.trainers.layout import PipelineLayout
from placements.trainers.megatron_layout import check_megatron, read_notation


@dataclass(frozen=True, kw_only=True)
class LayoutPlacement(PlacementKind):
    """Options that the placements of all frameworks have in common."""

    kind: str = option("", "set by placement=")
    layers: Verbatim | None = option(
        REQUIRED, "CSV of the model's layers: layer,kind,forward_ms,backward_ms,activation_mib,weight_mib"
    )
    memory_mib: float | None = option(None, "memory of each device; null: no limit", "MiB", above=0)
    transfer_ms: float = option(
        0.0, "time from the end of a block to where its output is on the next device", "ms", min=0
    )

    @property
    def pipeline(self) -> PipelineLayout:
        """The layout that the options name."""
        raise NotImplementedError

    @property
    def source(self) -> str:
        """Where it is from, in words."""
        raise NotImplementedError

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the layout's stages on their devices: a V-shape, or a loop with several on each."""
        layers = read_layers(require_path("placement.layers", self.layers))
        placement = place_layout(self.pipeline, layers, self.memory_mib, self.transfer_ms).placement
        times = f"layers of {self.layers}, layout of {self.source}"
        return Built(placement, times, power_model(gpu), memory_unit_mib=placement.memory_unit_mib)


@dataclass(frozen=True, kw_only=True)
class MegatronPlacement(LayoutPlacement):
    """The `placement` group of a Megatron-LM command line, or of a layout in its notation."""

    kind: str = option("megatron", "set by placement=")
    path: Verbatim | None = option(None, "file with Megatron-LM's arguments, or a script with them")
    layout: Verbatim | None = option(None, "instead: a layout as of --pipeline-model-parallel-layout")
    num_devices: int | None = option(None, "beside that: pipeline ranks", min=1)

    @property
    def pipeline(self) -> PipelineLayout:
        """The layout of the file, or the notation's."""
        if (self.path is None) == (self.layout is None):
            raise OptionError("placement.path: give either it, or placement.layout and placement.num_devices")
        if self.layout is None:
            return read_any(require_path("placement.path", self.path)).layout
        if self.num_devices is None:
            raise OptionError("placement.num_devices: is missing; give the pipeline ranks of the layout")
        found = read_notation(self.layout, self.num_devices, "placement.layout")
        return check_megatron(found, found.num_layers, found.num_mtp, "placement.layout")

    @property
    def source(self) -> str:
        """The file, or the notation itself."""
        return str(self.path or self.layout)


@dataclass(frozen=True, kw_only=True)
class TorchtitanPlacement(LayoutPlacement):
    """The `placement` group of the flags of a torchtitan job."""

    kind: str = option("torchtitan", "set by placement=")
    path: Verbatim | None = option(REQUIRED, "file with torchtitan's flags, or a script with them")

    @property
    def pipeline(self) -> PipelineLayout:
        """The layout of the file."""
        return read_any(require_path("placement.path", self.path)).layout

    @property
    def source(self) -> str:
        """The file."""
        return str(self.path)
