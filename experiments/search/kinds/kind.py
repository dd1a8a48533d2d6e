"""The base of every kind of placement, and its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from experiments.config.options import OptionError
from placements import BlockingPower, Kind, Placement, PlacementError, Profile
from placements.forms.meaning import option
from placements.hardware import Gpu, modelled_profile
from placements.models.training_figures import UNKNOWN_WORK, IterationWork

if TYPE_CHECKING:
    from placements.models.chain import ModelShape
    from placements.models.costing.options import CostOptions
    from placements.planners.hybrid.plan import Plan
    from placements.trainers.layout import PipelineLayout


class PlannedRun(NamedTuple):
    """A plan's part in a run.

    Attributes:
        num_micro_batches: Number of micro-batches of an iteration.
        micro_batch_size: Samples of one, of all data-parallel groups together.
        recompute: Forward blocks that are computed again for the backward.
        layers: Transformer layers of each forward block; empty where the plan says nothing of them.
    """

    num_micro_batches: int
    micro_batch_size: int
    recompute: tuple[str, ...]
    layers: dict[str, int]

    def shared_layers(self, num_layers: object) -> dict[str, int] | None:
        """Return the layers of each block, the plan's or a number in its proportions; None for none."""
        if not isinstance(num_layers, int) or not self.layers:
            return self.layers or None
        from placements.planners.division import in_proportion

        return dict(zip(self.layers, in_proportion(tuple(self.layers.values()), num_layers), strict=True))


class Measured(NamedTuple):
    """Measured costs of a placement's blocks.

    Attributes:
        profile: CSV of times and energies.
        facts: JSON file about the measurement.
        blocking_power_w: Power of a GPU that waits; None where it was not measured.
    """

    profile: Path
    facts: Path
    blocking_power_w: BlockingPower | None


@dataclass(frozen=True)
class Built:
    """A placement and the source of its costs.

    Attributes:
        placement: Blocks on their devices; its unit of memory is None where only the user knows it.
        times: Source of its times in words.
        model: Model of the costs of these blocks at each clock.
        placeholder: Whether the times are only the ticks of a shape.
        planned: Plan of Galvatron that it was made of, with the micro-batches of the options.
        plan: Plan of which each block is a stage.
        layout: Parts of the model on each stage, where they are known without a plan.
        in_words: Galvatron's plan, in a line.
        work: Tokens and operations of an iteration, where a model is known.
    """

    placement: Placement
    times: str
    model: Callable[[Placement], Profile]
    placeholder: bool = False
    planned: Plan | None = None
    plan: Plan | None = None
    layout: PipelineLayout | None = None
    in_words: str = ""
    work: IterationWork = UNKNOWN_WORK


class PlacementKind:
    """A kind of placement, as a record of its options."""

    kind: str

    @property
    def device_gpus(self) -> list[Counter[Gpu]] | None:
        """GPUs of each device in a plan; None where `profile.gpu` names them."""
        return None

    @property
    def measured(self) -> Measured | None:
        """Measured costs of the blocks, with their energies; None without a measurement."""
        return None

    def run(self, gpu: Gpu) -> PlannedRun | None:
        """Return its part in a run on a GPU; None for none."""
        return None

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the placement.

        Args:
            gpu: GPU of every device, unless `device_gpus` says otherwise.
            num_micro_batches: Micro-batches of an iteration; a plan is carried out with that number.
            profile: Profile of the blocks, if one was read.

        Raises:
            OptionError: An option is wrong.
            PlacementError: A file is.
            PlanError: A plan is.
        """
        raise NotImplementedError


def power_model(gpu: Gpu) -> Callable[[Placement], Profile]:
    """Return a power model for blocks of which only times are known."""
    return lambda placement: modelled_profile(placement, gpu)


def with_data_parallel(placement: Placement, number: int | None) -> Placement:
    """Return a placement with a number of data-parallel groups for all but optimizer blocks; None: its own.

    Raises:
        OptionError: The number does not divide the GPUs of a block.
    """
    if number is None:
        return placement
    blocks = (
        block if block.kind is Kind.O else replace(block, data_parallel=number) for block in placement.blocks
    )
    try:
        return replace(placement, blocks=tuple(blocks))
    except PlacementError as error:
        raise OptionError(f"placement.{error}") from None


@dataclass(frozen=True, kw_only=True)
class ModelledKind(PlacementKind):
    """Options of a GPU's rates and of a GPT's sizes, for the kinds with a cost model of a GPT."""

    kind: str = option("", "set by placement=")
    model_flops_utilisation: float = option(0.5, "share of the GPU's peak that transformer layers reach")
    output_layer_utilisation: float = option(0.65, "share of the peak that the output layer reaches")
    memory_efficiency: float = option(0.85, "share of the memory bandwidth that is reached")
    link_efficiency: float = option(0.77, "share of the link bandwidth that is reached")
    reserve_gib: float = option(4.0, "memory of each GPU that neither parameters nor activations use", "GiB")
    hidden_size: int = option(4096, "hidden size of the model")
    num_heads: int = option(32, "attention heads")
    vocab_size: int = option(50304, "entries of the vocabulary")
    sequence_length: int = option(2048, "tokens of a sample")
    flash_attention: bool = option(
        True, "true: attention keeps no scores; false: they are kept for the backward"
    )
    tick_ms: float | None = option(
        None, "duration of a tick, in ms; null: so short that the shortest block has a hundred ticks or more"
    )

    def gpt(self, num_layers: int) -> ModelShape:
        """Return the model with a number of transformer layers."""
        from placements.planners.hybrid.placing.gpt import gpt_model

        sizes = num_layers, self.hidden_size, self.num_heads, self.vocab_size, self.sequence_length
        return gpt_model(*sizes, flash_attention=self.flash_attention)

    @property
    def reached(self) -> CostOptions:
        """Shares of its peaks that a GPU reaches."""
        from placements.models.costing.options import CostOptions

        return CostOptions(
            self.model_flops_utilisation, self.output_layer_utilisation, self.memory_efficiency
        )
