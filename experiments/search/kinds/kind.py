"""The base of every kind of placement, and its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from experiments.config.options import read_fields
from placements import BlockingPower, Placement, Profile
from placements.forms.meaning import option
from placements.hardware import Gpu, modelled_profile
from placements.models.costing.options import CostOptions
from placements.planners.division import in_proportion
from placements.planners.hybrid.plan import Plan


class RunPlan(NamedTuple):
    """A plan as it is carried out.

    Attributes:
        plan: With the number of micro-batches that the options ask for.
        given: The plan as its planner wrote it.
        path: Where.
    """

    plan: Plan
    given: Plan
    path: str

    def describe(self) -> str:
        """Return the plan in a line, with its differences in the placement and in a run."""
        plan, given = self.plan, self.given
        facts = [
            f"{plan.num_stages} stages of {len(plan.stages[0].gpus)} GPUs with {_listed(plan.stage_layers)} "
            f"layers, {len(plan.pieces)} forward blocks",
            f"{plan.num_micro_batches} micro-batches of {plan.micro_batch_size} samples",
            f"runtime.recompute=[{_listed(plan.recomputed_blocks)}]",
        ]
        if plan.num_micro_batches != given.num_micro_batches:
            facts.append(f"not its chunks {given.num_micro_batches}")
        return f"{Path(self.path).name}: {'; '.join(facts)}"


def _listed(values: tuple[object, ...]) -> str:
    return ",".join(str(value) for value in values)


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
        return dict(zip(self.layers, in_proportion(tuple(self.layers.values()), num_layers), strict=True))


class Measured(NamedTuple):
    """Measured costs of a placement's blocks.

    Attributes:
        profile: The CSV of times and energies.
        facts: The file that says how.
        blocking_power_w: Of a GPU that waits; None where it was not measured.
    """

    profile: Path
    facts: Path
    blocking_power_w: BlockingPower | None


@dataclass(frozen=True)
class Built:
    """A placement and where its costs come from.

    Attributes:
        placement: What runs where.
        times: Where its times come from, in words.
        placeholder: Nobody gave the times: they are ticks of a shape.
        model: Models what a placement of these blocks costs at each clock.
        memory_unit_mib: Of its memory; None where only the user knows it.
        planned: The plan that it is of, if a planner made it.
    """

    placement: Placement
    times: str
    model: Callable[[Placement], Profile]
    placeholder: bool = False
    memory_unit_mib: float | None = None
    planned: RunPlan | None = None


class PlacementKind:
    """A kind of placement, as a record of its options."""

    kind: str

    @classmethod
    def of_options(cls, data: Mapping[str, Any]) -> Self:
        """Return the record of a `placement` group."""
        return read_fields(dict(data), cls, "placement")

    @property
    def device_gpus(self) -> list[Counter[Gpu]] | None:
        """The GPUs of each device, where a plan says so; None where `profile.gpu` names them."""
        return None

    @property
    def measured(self) -> Measured | None:
        """The measured costs of the blocks, with their energies; None without a measurement."""
        return None

    def run(self, gpu: Gpu) -> PlannedRun | None:
        """Return its part in a run on a GPU; None for none."""
        return None

    def build(self, gpu: Gpu, num_micro_batches: int, profile: Profile | None) -> Built:
        """Return the placement.

        Args:
            gpu: What every device is, unless `device_gpus` says otherwise.
            num_micro_batches: Of an iteration; a plan is carried out with that number.
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


@dataclass(frozen=True, kw_only=True)
class ModelledKind(PlacementKind):
    """The options of a GPU's rates, which the cost models of a GPT have in common."""

    kind: str = option("", "set by placement=")
    model_flops_utilisation: float = option(0.5, "share of the GPU's peak that transformer layers reach")
    output_layer_utilisation: float = option(0.65, "share of the peak that the output layer reaches")
    memory_efficiency: float = option(0.85, "share of the memory bandwidth that is reached")
    link_efficiency: float = option(0.77, "share of the link bandwidth that is reached")
    reserve_gib: float = option(4.0, "memory of each GPU that neither parameters nor activations use", "GiB")

    @property
    def reached(self) -> CostOptions:
        """Shares of its peaks that a GPU reaches."""
        return CostOptions(
            self.model_flops_utilisation, self.output_layer_utilisation, self.memory_efficiency
        )
