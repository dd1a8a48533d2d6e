"""Tables of recipes: layouts that others publish with their throughput, priced beside the best of ours.

The form is that of Megatron-Bridge's summary of performance; see `docs/commands/predict.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from experiments.predict.measured_folder import MeasuredFolderError
from placements.cluster import Cluster, read_cluster
from placements.forms.meaning import Meaning
from placements.forms.texts import csv_text
from placements.models.chain import ModelShape
from placements.models.costing.options import CostOptions, Graphs
from placements.models.memory import Framework
from placements.models.zoo import MODELS, read_model
from placements.models.zoo.shapes import suggestion
from placements.planners.hybrid.search.layout_search import LayoutEstimate, LayoutOptions, LayoutSearch
from placements.planners.hybrid.uniform import Degrees, Layout
from schedsearch.planning.uniform_run import layout_in_words

COLUMNS = (
    *("model", "system", "gpus", "precision", "batch", "recipe", "measured_tokens_per_s_per_gpu"),
    *("predicted_tokens_per_s_per_gpu", "recipe_gib", "best", "best_tokens_per_s_per_gpu", "best_gib"),
    *("share_of_best", "note"),
)
"""Columns of the table that is written."""

NEAR = 0.9
"""Share of the best throughput from which a recipe counts as near to it."""

_MODELS = {"".join(filter(str.isalnum, name)): name for name in MODELS}
"""Names of models without what stands between letters and digits."""

_SYSTEMS: dict[str, tuple[str, int, float | None]] = {
    "DGX-H100": ("h100", 8, None),
    "DGX-B200": ("b200", 8, None),
    "DGX-B300": ("gb300", 8, 800.0),
    "DGX-GB200": ("gb200", 64, None),
    "DGX-GB300": ("gb300", 64, None),
}
"""GPU of each system, how many of them are in a node, or are used of a rack, and the bandwidth between nodes
in GB/s, None for that of the GPU's usual machine: a DGX B300 has eight adapters of 800 Gb/s."""

_WHOLE_GRAPHS = ("DGX-B300", "DGX-GB200", "DGX-GB300"), "26.06"
"""Systems that run recipes of experts in MXFP8 as one CUDA graph, and the first release that does."""

_ATTENTION_GRAPHS = ("DGX-GB200", "DGX-GB300")
"""Systems whose recipes of experts have attention and router as CUDA graphs (Megatron-Bridge,
scripts/performance/configs)."""

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
    release: Annotated[str, Meaning("release of the software that it ran with")] = ""

    @property
    def known_model(self) -> str:
        """Name of the model as `read_model` has it; an error if it is not known."""
        name = self.model.partition("(")[0].strip()
        plain = "".join(filter(str.isalnum, name.lower()))
        if plain not in _MODELS:
            raise MeasuredFolderError(f"Model: {name!r} is not known; {suggestion(name.lower(), MODELS)}")
        return _MODELS[plain]

    @property
    def graphs(self) -> Graphs:
        """Parts of layers with experts that run as CUDA graphs."""
        systems, first = _WHOLE_GRAPHS
        release = re.match(r"[0-9]{2}\.[0-9]{2}", self.release)
        is_whole = self.system in systems and self.precision in ("MXFP8", "FP8-MX")
        if is_whole and release and release[0] >= first:
            return "iteration"
        return "attention" if self.system in _ATTENTION_GRAPHS else "none"

    @property
    def measured_tokens_per_s(self) -> float | None:
        """Measured tokens/s of a GPU, the first of several figures; None where there is none."""
        found = re.match(r"[0-9.]+", self.measured.replace(",", ""))
        return float(found[0]) if found else None

    @property
    def layout(self) -> Layout:
        """How its GPUs share the model; an error if its numbers do not divide."""
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
        """Return its GPUs; an error if the system is not known."""
        gpu, in_node, node_gb_s = _named("System", self.system, _SYSTEMS)
        return read_cluster(
            f"{gpu}_{self.gpus}", gpus_per_node=min(in_node, self.gpus), node_bandwidth_gb_s=node_gb_s
        )

    def shape(self) -> ModelShape:
        """Return its model, in its precision and with its tokens; an error if a name is not known."""
        precision = _named("Precision", self.precision.partition("(")[0].strip(), _PRECISIONS)
        sizes = {"sequence_length": self.sequence_length, "precision": precision, "causal": True}
        model = read_model(self.known_model, **sizes)
        if self.is_frozen:
            frozen = replace(model.precision, gradient_bytes=0, optimizer_bytes=0)
            model = replace(model, precision=frozen)
        if not model.precision.has_casts:
            return model
        # The recipes add gradients up in 16 bits.
        gradient_bytes = min(model.precision.gradient_bytes, 2)
        return replace(model, precision=replace(model.precision, gradient_bytes=gradient_bytes))


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
    def error(self) -> float | None:
        """Share of the measured throughput by which the predicted one is above it; None if unknown."""
        measured = self.recipe.measured_tokens_per_s
        return None if not measured or self.own is None else self.tokens_per_s(self.own) / measured - 1

    @property
    def has_experts(self) -> bool:
        """Whether its layout shares experts."""
        return self.recipe.layout.degrees.expert > 1

    @property
    def share(self) -> float | None:
        """Throughput of the recipe as a share of the best one's."""
        return None if self.own is None or self.best is None else self.best.time_ms / self.own.time_ms

    @property
    def is_near(self) -> bool:
        """Whether the recipe fits and is near to the best."""
        return self.fits and self.share is not None and self.share >= NEAR

    def tokens_per_s(self, estimate: LayoutEstimate) -> float:
        """Return the throughput of a GPU under a layout."""
        recipe = self.recipe
        tokens = recipe.batch * recipe.sequence_length / recipe.gpus
        return 1e3 * tokens / estimate.time_ms


@dataclass(frozen=True)
class RecipePrices:
    """The price of recipes by the formula of layouts; searches on the same GPUs are done once."""

    framework: Framework
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
        key = recipe.known_model, recipe.system, recipe.precision, sizes, recipe.is_frozen, recipe.graphs
        if key not in self._searches:
            search = search_of(recipe, self.framework)
            found = search.ranked(filter(None, search.rated(search.layouts())))
            best = found[0] if found and found[0].gib <= search.limit_gib else None
            self._searches[key] = search, best
        return self._searches[key]


def search_of(recipe: Recipe, framework: Framework) -> LayoutSearch:
    """Return the formula and the search that a recipe and the best layout have in common."""
    model = recipe.shape()
    costs = CostOptions(
        precision=model.precision,
        framework=framework,
        overlap_tensor_parallel=True,
        sends_tokens_once=True,
        graphs=recipe.graphs,
        overlap_weights=True,
        exchanges_apart=True,
    )
    options = LayoutOptions(micro_batch_sizes=(1, 2, 4, 8))
    return LayoutSearch(model, recipe.cluster(), recipe.batch, costs, options)


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


def recipes_to_csv(priced: Iterable[PricedRecipe]) -> str:
    """Return priced recipes as CSV."""
    rows = []
    for each in priced:
        recipe, share = each.recipe, each.share
        own, best = (
            ["", "", ""]
            if one is None
            else [layout_in_words(one.layout), f"{each.tokens_per_s(one):.0f}", f"{one.gib:.1f}"]
            for one in (each.own, each.best)
        )
        asked = [recipe.model, recipe.system, recipe.gpus, recipe.precision, recipe.batch]
        shown = [own[0], recipe.measured, *own[1:], *best, "" if share is None else f"{share:.3f}", each.note]
        rows.append([*asked, *shown])
    return csv_text(COLUMNS, rows)
