"""A file of stages, or of layers, with their times: the model of `experiments.compare`."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.options import require_path
from experiments.search.kinds.kind import Built, PlacementKind, power_model
from placements import Profile
from placements.forms.meaning import REQUIRED, Verbatim, option
from placements.hardware import Gpu
from placements.pieces import PIPELINES
from placements.stages.stage_chain import PlacedStages, StageChain, place
from placements.stages.stage_file import read_stages


@dataclass(frozen=True, kw_only=True)
class StagesPlacement(PlacementKind):
    """The `placement` group of a file of stages; see `placements.stages.stage_chain.place`."""

    kind: str = option("stages", "set by placement=")
    path: Verbatim | None = option(REQUIRED, "a stages.yaml, as schedsearch compare reads it")
    shape: str = option(
        "wave_shape",
        "v_shape: one stage on each device | wave_shape, loop_shape: several | x_shape: two, in opposite "
        "directions",
        choices=tuple(PIPELINES),
    )
    num_chunks: int = option(2, "stages on each device of a wave or a loop", min=1)

    @property
    def stages(self) -> StageChain:
        """The file's stages or layers."""
        return read_stages(require_path("placement.path", self.path))

    def placed(self) -> PlacedStages:
        """Return the stages on their devices, the backward split where the file tells its halves."""
        from placements.slices.slices import place_in_slices

        stages = self.stages
        make = place if stages.sequence_slices is None else place_in_slices
        return make(stages, self.shape, stages.knows_halves, self.num_chunks)

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the stages on their devices."""
        return Built(self.placed().placement, f"stages of {self.path}", power_model(gpu))
