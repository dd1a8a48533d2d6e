"""Tables of recipes: layouts that others publish with their throughput, priced beside the best of ours.

The form is that of Megatron-Bridge's summary of performance; see `docs/commands/predict.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from experiments.predict.measured_folder import MeasuredFolderError
from placements.cluster import Cluster, read_cluster
from placements.files import csv_text
from placements.meaning import Meaning
from placements.models.chain import ModelShape
from placements.models.costing.options import CostOptions
from placements.models.memory import Framework
from placements.models.zoo import read_model
from placements.planners.hybrid.search.layout_search import LayoutEstimate, LayoutOptions, LayoutSearch
from placements.planners.hybrid.uniform import Degrees, Layout
from schedsearch.planning.layout_plans import layout_in_words

COLUMNS = (
    *("model", "system", "gpus", "precision", "batch", "recipe", "measured_tokens_per_s_per_gpu"),
    *("predicted_tokens_per_s_per_gpu", "recipe_gib", "best", "best_tokens_per_s_per_gpu", "best_gib"),
    *("share_of_best", "note"),
)
"""Columns of the table that is written."""

NEAR = 0.9
"""Share of the best throughput from which a recipe counts as near to it."""

_MODELS = {
    "LLAMA3_8B": "llama3_8b",
    "LLAMA3_70B": "llama3_70b",
    "LLAMA3.1_405B": "llama31_405b",
    "QWEN3_30B_A3B": "qwen3_30b_a3b",
    "QWEN3_235B_A22B": "qwen3_235b_a22b",
}
"""Names of models, in capitals and without what stands behind them in brackets."""

_SYSTEMS = {
    "DGX-H100": ("h100", 8),
    "DGX-B200": ("b200", 8),
    "DGX-B300": ("gb300", 8),
    "DGX-GB200": ("gb200", 64),
    "DGX-GB300": ("gb300", 64),
}
"""GPU of each system, and how many of them are in a node, or are used of a rack."""

_PRECISIONS = {"": "bf16", "BF16": "bf16", "FP8": "fp8", "FP8-CS": "fp8", "FP8-MX": "mxfp8"} | {
    name: name.lower() for name in ("MXFP8", "NVFP4")
}


@dataclass(frozen=True)
class Recipe:
    """A row of a table of recipes."""

    model: Annotated[str, Meaning("name of the model", key="Model")]
    system: Annotated[str, Meaning("name of the machine", key="System")]
    gpus: Annotated[int, Meaning("GPUs", min=1, key="#-GPUs")]
    batch: Annotated[int, Meaning("samples of an iteration", min=1, key="GBS")]
    micro_batch: Annotated[int, Meaning("samples of a micro-batch", min=1, key="MBS")]
    sequence_length: Annotated[int, Meaning("tokens of a sample", min=1, key="Sequence Length")]
    tensor: Annotated[str, Meaning("GPUs that share each matrix", key="TP")]
    pipeline: Annotated[str, Meaning("stages", key="PP")]
    precision: Annotated[str, Meaning("precision of products", key="Precision")] = ""
    fsdp: Annotated[str, Meaning("GPUs that share weights", key="FSDP")] = ""
    context: Annotated[str, Meaning("GPUs that share the tokens of a sample", key="CP")] = ""
    chunks: Annotated[str, Meaning("chunks of a stage", key="VP")] = ""
    expert: Annotated[str, Meaning("GPUs that share the experts", key="EP")] = ""
    section: Annotated[str, Meaning("kind of training; with LoRA in its name weights are frozen")] = ""
    measured: Annotated[str, Meaning("measured tokens/s of a GPU", key="Tokens / sec / GPU")] = ""

    @property
    def known_model(self) -> str:
        """Name of the model as `read_model` has it.

        Raises:
            MeasuredFolderError: It is not known.
        """
        return str(_named("Model", self.model.partition("(")[0].strip().upper(), _MODELS))

    @property
    def layout(self) -> Layout:
        """How its GPUs share the model.

        Raises:
            MeasuredFolderError: Its numbers do not divide.
        """
        tensor, pipeline, context = _degree(self.tensor), _degree(self.pipeline), _degree(self.context)
        data, left = divmod(self.gpus, tensor * pipeline * context)
        number, samples_left = divmod(self.batch, max(data, 1) * self.micro_batch)
        if left or samples_left or not number:
            raise MeasuredFolderError(
                f"{self.gpus} GPUs and a batch of {self.batch} are not divided by its degrees"
            )
        expert = _degree(self.expert)
        whole = tensor > 1 and expert > 1
        degrees = Degrees(tensor, pipeline, data, context, expert, _degree(self.chunks), whole)
        zero = 3 if _degree(self.fsdp) > 1 and pipeline == 1 else 1
        return Layout(degrees, self.micro_batch, number, zero)

    @property
    def is_frozen(self) -> bool:
        """Whether adapters are trained, and not the weights."""
        return "lora" in self.section.lower()

    def cluster(self) -> Cluster:
        """Return its GPUs.

        Raises:
            MeasuredFolderError: The system is not known.
        """
        gpu, in_node = _named("System", self.system, _SYSTEMS)
        return read_cluster(f"{gpu}_{self.gpus}", gpus_per_node=min(in_node, self.gpus))

    def shape(self) -> ModelShape:
        """Return its model, in its precision and with its tokens.

        Raises:
            MeasuredFolderError: A name is not known.
        """
        precision = _named("Precision", self.precision.partition("(")[0].strip(), _PRECISIONS)
        sizes = {"sequence_length": self.sequence_length, "precision": precision, "causal": True}
        model = read_model(self.known_model, **sizes)
        if self.is_frozen:
            frozen = replace(model.precision, gradient_bytes=0, optimizer_bytes=0)
            model = replace(model, precision=frozen)
        alone = model.precision.with_weights_alone
        if alone == model.precision:
            return model
        # The recipes add gradients up in 16 bits.
        return replace(model, precision=replace(alone, gradient_bytes=min(alone.gradient_bytes, 2)))


def _named(column: str, name: str, known: Mapping[str, object]) -> Any:
    if name not in known:
        names = ", ".join(filter(None, known))
        raise MeasuredFolderError(f"{column}: {name!r} is not known; use one of {names}")
    return known[name]


def _degree(text: str) -> int:
    """Return the number with which a cell begins; 1 for n/a, 0 and nothing."""
    found = re.match(r"[0-9]+", text)
    return max(int(found[0]), 1) if found else 1


@dataclass(frozen=True)
class PricedRecipe:
    """A recipe beside the best layout on the same GPUs.

    Attributes:
        recipe: The recipe.
        own: Estimate of the recipe's layout; None where it cannot be priced.
        best: The best layout that fits; None where none does, or where it was not searched.
        fits: Whether the recipe fits by the formula.
        note: Why it was not priced, or why it is far from the best.
    """

    recipe: Recipe
    own: LayoutEstimate | None
    best: LayoutEstimate | None
    fits: bool
    note: str

    @property
    def share(self) -> float | None:
        """Throughput of the recipe as a share of the best one's."""
        return None if self.own is None or self.best is None else self.best.time_ms / self.own.time_ms

    @property
    def is_near(self) -> bool:
        """Whether the recipe fits and is near to the best."""
        return self.fits and self.share is not None and self.share >= NEAR

    def tokens_per_s(self, estimate: LayoutEstimate | None) -> str:
        """Return the throughput of a GPU under a layout; empty for none."""
        if estimate is None:
            return ""
        recipe = self.recipe
        return f"{1e3 * recipe.batch * recipe.sequence_length / recipe.gpus / estimate.time_ms:.0f}"


@dataclass(frozen=True)
class RecipePrices:
    """The price of recipes by the formula of layouts; searches on the same GPUs are done once.

    Attributes:
        framework: Framework, which holds memory besides states and activations.
        overlap_experts: Tokens go to their experts and back beside another micro-batch, of recipes and of the
            best alike.
    """

    framework: Framework
    overlap_experts: bool = True
    _searches: dict[tuple[object, ...], tuple[LayoutSearch, LayoutEstimate | None]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def price(self, recipe: Recipe) -> PricedRecipe:
        """Return a recipe beside the best layout; where it cannot be priced, the note says why."""
        try:
            search, best = self._search(recipe)
            own = search.least_recomputed(recipe.layout)
        except ValueError as why:
            return PricedRecipe(recipe, None, None, False, str(why))
        fits = own.gib <= search.limit_gib
        priced = PricedRecipe(recipe, own, best, fits, "")
        return PricedRecipe(recipe, own, best, fits, "" if priced.is_near else _why_not(priced, search))

    def _search(self, recipe: Recipe) -> tuple[LayoutSearch, LayoutEstimate | None]:
        sizes = recipe.gpus, recipe.batch, recipe.sequence_length
        key = recipe.known_model, recipe.system, recipe.precision, sizes, recipe.is_frozen
        if key not in self._searches:
            model = recipe.shape()
            costs = CostOptions(
                precision=model.precision,
                framework=self.framework,
                overlap_tensor_parallel=True,
                overlap_experts=self.overlap_experts,
                sends_tokens_once=True,
                frozen_weights=recipe.is_frozen,
                overlap_weights=True,
                exchanges_apart=True,
            )
            options = LayoutOptions(micro_batch_sizes=(1, 2, 4, 8))
            search = LayoutSearch(model, recipe.cluster(), recipe.batch, costs, options)
            found = search.estimates()
            best = found[0] if found and found[0].gib <= search.limit_gib else None
            self._searches[key] = search, best
        return self._searches[key]


def _why_not(priced: PricedRecipe, search: LayoutSearch) -> str:
    own, best = priced.own, priced.best
    assert own is not None, "priced"
    if not priced.fits:
        return f"by our rules it holds {own.gib:.0f} GiB of {search.limit_gib:.0f}"
    if best is None:
        return "no layout fits by our rules"
    more = [] if own.layout.recompute == "none" else ["computes layers again"]
    ends = own.time_ms - own.load_ms, best.time_ms - best.load_ms
    more.append(f"fullest stage {own.load_ms / best.load_ms:.2f} times the best's")
    more.append(f"ends {ends[0]:.0f} ms, the best's {ends[1]:.0f}")
    return "; ".join(more)


def recipes_to_csv(priced: Iterator[PricedRecipe] | list[PricedRecipe]) -> str:
    """Return priced recipes as CSV."""
    rows = []
    for each in priced:
        recipe, own, best = each.recipe, each.own, each.best
        rows.append(
            [
                *(recipe.model, recipe.system, recipe.gpus, recipe.precision, recipe.batch),
                *(
                    "" if own is None else layout_in_words(own.layout),
                    recipe.measured,
                    each.tokens_per_s(own),
                ),
                *(
                    "" if own is None else f"{own.gib:.1f}",
                    "" if best is None else layout_in_words(best.layout),
                ),
                *(each.tokens_per_s(best), "" if best is None else f"{best.gib:.1f}"),
                *("" if each.share is None else f"{each.share:.3f}", each.note),
            ]
        )
    return csv_text(COLUMNS, rows)
