"""A GPT: a cost model of its layers gives the times of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.config.options import OptionError, require_known
from experiments.search.kinds.kind import Built, ModelledKind
from placements import Profile
from placements.forms.meaning import option
from placements.hardware import Gpu, modelled_profile
from placements.planners.hybrid.placing.gpt import ARRANGEMENTS, gpt_model, place_gpt
from placements.planners.hybrid.placing.planned_placement import compute_shares
from placements.slices.slices import gpt_in_slices


@dataclass(frozen=True, kw_only=True)
class GptPlacement(ModelledKind):
    """The `placement` group of a GPT; see `placements.planners.hybrid.placing.gpt`."""

    kind: str = option("gpt", "set by placement=")
    arrangement: str = option("m_shape", "m_shape: embedding and tied output layer on all devices | v_shape")
    num_devices: int = option(4, "devices of the pipeline")
    num_layers: int = option(32, "transformer layers")
    hidden_size: int = option(4096, "hidden size of the model")
    num_heads: int = option(32, "attention heads")
    vocab_size: int = option(1000000, "entries of the vocabulary")
    sequence_length: int = option(2048, "tokens of a sample")
    micro_batch_size: int = option(2, "samples of a micro-batch")
    recompute: bool = option(False, "recompute each layer's activations in the backward")
    modes: tuple[str, ...] = option(
        (), "what each stage may compute again, for each micro-batch, as searched: [selective, full]"
    )
    flash_attention: bool = option(
        True, "true: attention keeps no scores; false: they are kept for the backward"
    )
    tick_ms: float | None = option(
        None, "duration of a tick, in ms; null: so short that the shortest block has a hundred ticks or more"
    )
    num_gpus: int | tuple[int, ...] | None = option(
        1, "GPUs that each device stands for, one number: they share its layers; a run has a process for each"
    )
    data_parallel: int | Mapping[Any, Any] | None = option(
        None, "for v_shape: number of groups of a device's GPUs that share the samples; null: 1"
    )

    num_slices: int = option(1, "for v_shape: slices of each sequence, with keys and values kept; 1: whole")
    partition: str = option("even", "even | equal_time: lengths of the slices")

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the GPT on its devices."""
        num_gpus = _one_number("num_gpus", self.num_gpus)
        data_parallel = _one_number("data_parallel", self.data_parallel)
        require_known("placement.arrangement", self.arrangement, ARRANGEMENTS)
        if self.num_slices != 1 and (self.arrangement != "v_shape" or data_parallel != 1 or self.modes):
            raise OptionError(
                f"placement.num_slices: {self.num_slices} slices are costed for arrangement=v_shape without "
                "data_parallel and modes; set these, or give 1"
            )
        try:
            placed = place_gpt(
                gpt_model(
                    self.num_layers,
                    self.hidden_size,
                    self.num_heads,
                    self.vocab_size,
                    self.sequence_length,
                    flash_attention=self.flash_attention,
                ),
                gpu,
                self.num_devices,
                self.arrangement,
                micro_batch_size=self.micro_batch_size,
                num_gpus=num_gpus,
                data_parallel=data_parallel,
                recompute=self.recompute,
                modes=self.modes,  # type: ignore[arg-type]
                tick_ms=self.tick_ms,
                options=self.reached,
                link_efficiency=self.link_efficiency,
                reserve_gib=self.reserve_gib,
            )
            whole = self.num_slices == 1
            placement = placed.placement if whole else gpt_in_slices(placed, self.num_slices, self.partition)
        except ValueError as error:
            raise OptionError(f"placement.{error}") from None
        return Built(
            placement,
            f"cost model of placement=gpt on {gpu.name}",
            lambda each: modelled_profile(
                each, gpu, compute_shares(placed.pieces, each, gpu) if whole else {}
            ),
            memory_unit_mib=placement.memory_unit_mib,
        )


def _one_number(name: str, value: object) -> int:
    """Return an option of which a GPT has one number for all devices; 1 where it is null."""
    if value is None:
        return 1
    if not isinstance(value, int) or value < 1:
        shown = [*value] if isinstance(value, tuple) else repr(value)
        raise OptionError(
            f"placement.{name}: {shown} is not one number of at least 1, and in placement=gpt all devices "
            "share their layers alike; give one number, or a plan (placement=galvatron) or times of your own "
            "(placement=file)"
        )
    return value
