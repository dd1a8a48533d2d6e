"""A GPT: a cost model of its layers gives the times of blocks."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config.options import OptionError
from experiments.search.kinds.kind import Built, ModelledKind
from placements import Profile
from placements.forms.meaning import option
from placements.hardware import Gpu, modelled_profile
from placements.models.training_figures import IterationWork


@dataclass(frozen=True, kw_only=True)
class GptPlacement(ModelledKind):
    """The `placement` group of a GPT; see `placements.planners.hybrid.placing.gpt`."""

    kind: str = option("gpt", "set by placement=")
    vocab_size: int = option(1000000, "entries of the vocabulary")
    arrangement: str = option(
        "m_shape",
        "m_shape: embedding and tied output layer on all devices | v_shape",
        choices=("m_shape", "v_shape"),
    )
    num_devices: int = option(4, "devices of the pipeline")
    num_layers: int = option(32, "transformer layers")
    micro_batch_size: int = option(2, "samples of a micro-batch")
    recompute: bool = option(False, "recompute each layer's activations in the backward")
    modes: tuple[str, ...] = option(
        (), "recomputation that each stage may choose for each micro-batch: [selective, full]"
    )
    num_gpus: int | None = option(
        1, "GPUs that each device stands for: they share its layers; a run has a process for each", min=1
    )
    data_parallel: int | None = option(
        None, "for v_shape: number of groups of a device's GPUs that share the samples; null: 1", min=1
    )
    num_slices: int = option(1, "for v_shape: slices of each sequence, with keys and values kept; 1: whole")
    partition: str = option("even", "even | equal_time: lengths of the slices")

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the GPT on its devices."""
        from placements.planners.hybrid.placing.gpt import place_gpt
        from placements.planners.hybrid.placing.planned_placement import compute_shares
        from placements.slices.slices import gpt_in_slices

        groups, whole = self.data_parallel or 1, self.num_slices == 1
        samples = num_micro_batches * self.micro_batch_size
        if not whole and (self.arrangement != "v_shape" or groups != 1 or self.modes):
            raise OptionError(
                f"placement.num_slices: {self.num_slices} slices are costed for arrangement=v_shape without "
                "data_parallel and modes; set these, or give 1"
            )
        try:
            placed = place_gpt(
                self.gpt(self.num_layers),
                gpu,
                self.num_devices,
                self.arrangement,
                micro_batch_size=self.micro_batch_size,
                num_gpus=self.num_gpus or 1,
                data_parallel=groups,
                recompute=self.recompute,
                modes=self.modes,  # type: ignore[arg-type]
                tick_ms=self.tick_ms,
                options=self.reached,
                link_efficiency=self.link_efficiency,
                reserve_gib=self.reserve_gib,
            )
            placement = placed.placement if whole else gpt_in_slices(placed, self.num_slices, self.partition)
        except ValueError as error:
            raise OptionError(f"placement.{error}") from None
        return Built(
            placement,
            f"cost model of placement=gpt on {gpu.name}",
            lambda other: modelled_profile(
                other, gpu, compute_shares(placed.pieces, other, gpu) if whole else {}
            ),
            work=IterationWork.of(self.gpt(self.num_layers), {gpu: sum(placement.gpus)}, samples),
            plan=placed.plan if whole and self.arrangement == "v_shape" else None,
        )
