"""A planner's choice in words: the best plan with its stages, and the other plans.

The module knows Markdown. It decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from placements.cluster import Cluster
from placements.forms.texts import markdown_table
from placements.models.parallel import LayerStrategy
from schedsearch.core.answer import Status
from schedsearch.planning.plans import Plans, RankedPlan, capacities_gib


def explain(plans: Plans, costs_in_words: str = "") -> str:
    """Return the best plan with its stages, and all plans, as Markdown, with where the costs are from."""
    title = f"# {plans.model.name} on {in_words(plans.cluster)}\n\n"
    if not plans.proposed:
        return f"{title}No plan was found before the interruption.\n"
    best, plan = plans.best, plans.best.plan
    numbers = (
        f"{plan.global_batch_size} samples in {plan.num_micro_batches} micro-batches of "
        f"{plan.micro_batch_size}; {plan.num_gpus} of {plans.cluster.num_gpus} GPUs."
    )
    if best.iteration_ms is not None and best.bound_ms is not None:
        proved = f"not proved, bound {best.bound_ms:,.5g} ms"
        proved = "makespan proved" if best.status is Status.OPTIMAL else proved
        numbers += f"\nIts schedule takes {best.iteration_ms:,.5g} ms ({proved})."
    heads, *rows = ranking(plans)
    parts = [f"Best plan: {best.name}.", f"{best.training_figures(plans.model)}.", numbers]
    parts += [f"{costs_in_words[:1].upper()}{costs_in_words[1:]}."] if costs_in_words else []
    parts += ["## Stages", "\n".join(_stages(best, plans)), "## Ranking", markdown_table(heads, rows)]
    parts += [f"{legend(plans)}.", *(f"Left out: {line}." for line in plans.left_out)]
    return title + "\n\n".join(parts) + "\n"


def in_words(cluster: Cluster) -> str:
    """Return the machines of a cluster in words."""
    nodes = " and ".join(f"{node.num_nodes} x {node.gpus_per_node} {node.gpu.name}" for node in cluster.nodes)
    if sum(node.num_nodes for node in cluster.nodes) == 1:
        return nodes
    return f"{nodes}, {cluster.node_bandwidth_gb_s:g} GB/s between nodes ({cluster.source})"


def strategy_in_words(strategy: LayerStrategy) -> str:
    """Return how GPUs share a layer in a few words.

    >>> strategy_in_words(LayerStrategy(2, 4, 3, "full"))
    'tp 2, dp 4 (ZeRO-3), recomputed'
    >>> strategy_in_words(LayerStrategy(2, 4, sequence="megatron", expert_parallel=8, whole_experts=True))
    'tp 2 with sequence parallel, dp 4, ep 8 (whole experts)'
    >>> strategy_in_words(LayerStrategy())
    'one GPU'
    """
    name = "ulysses" if strategy.sequence == "ulysses" else "tp"
    apart = "" if strategy.tensor_innermost else " (apart)"
    megatron = " with sequence parallel" if strategy.sequence == "megatron" else ""
    whole = " (whole experts)" if strategy.whole_experts else ""
    degrees = {
        f"{name} {{}}{apart}{megatron}": strategy.tensor_parallel,
        "cp {}": strategy.context_parallel,
        "dp {}": strategy.data_parallel,
    }
    parts = [text.format(degree) for text, degree in degrees.items() if degree > 1]
    if strategy.zero and parts:
        parts[-1] += f" (ZeRO-{strategy.zero})"
    parts += [f"ep {strategy.expert_parallel}{whole}"] if strategy.expert_parallel > 1 else []
    again = {"none": [], "full": ["recomputed"], "selective": ["attention recomputed"]}
    return ", ".join([*parts, *again[strategy.recompute]]) or "one GPU"


def _stages(best: RankedPlan, plans: Plans) -> Iterator[str]:
    """Yield a line for each stage: its GPUs, the strategies of its layers, and peak and capacity in GiB."""
    plan, shared = best.plan, best.rated.shared
    memory = zip(best.peaks_mib, capacities_gib(plan, plans.options), strict=True)
    for number, (peak_mib, capacity_gib) in enumerate(memory):
        gpus = plan.stages[number].gpus
        span = "-".join(str(gpu) for gpu in dict.fromkeys((gpus.start, gpus.stop - 1)))
        indices = [i for device, chunk in best.chunks if device == number for i in chunk]
        runs = (
            f"{count} {layer.name}{'s' * (count > 1)}: {strategy_in_words(how)}"
            for layer, how, count in plan.runs(indices or plan.stages[number].layers)
        )
        yield (
            f"- stage {number} on GPUs {span}: {'; '.join(runs)}; "
            f"{peak_mib / 1024:.1f} of {capacity_gib:.1f} GiB"
        )
    if shared is not None:
        names = Counter(layer.name for layer in shared.layers)
        layers = ", ".join(f"{count} {name}" for name, count in names.items())
        passes_ms = sum(cost.forward.time_ms + cost.backward.time_ms for cost in shared.costs)
        needs = f"{passes_ms:.4g} ms per micro-batch, {shared.held_mib / 1024:.2g} GiB of each GPU"
        how = strategy_in_words(shared.strategy)
        yield f"- on all GPUs besides: {layers}: {how}; {needs}, which the peaks count"


def ranking(plans: Plans) -> list[list[str]]:
    """Return the plans in order as rows of text; the first is the head."""
    rate = "tokens/s/GPU" if plans.model.num_tokens else "samples/s"
    rows = [["plan", "ms", rate, "MFU", "J/token", "GiB", "proved"]]
    for row in plans.rows():
        time_ms = row["formula_ms"] if row["iteration_ms"] is None else row["iteration_ms"]
        figures = (
            "=" * row["equal"] + _number(time_ms, ",.5g"),
            _number(row["tokens_per_s_per_gpu"] or row["samples_per_s"], ",.5g"),
            _number(row["mfu_percent"], ".1f", " %"),
            _number(row["j_per_token"], ".4g"),
            _number(row["peak_memory_mib"] / 1024, ".1f"),
        )
        rows.append([row["name"], *figures, row["proved"]])
    return rows


def legend(plans: Plans) -> str:
    """Return the meaning of a ranking's columns."""
    precision, kinds = plans.model.precision, dict.fromkeys(node.gpu for node in plans.cluster.nodes)
    of_peak = " and ".join(f"{precision.peak_tflops(gpu):g} TFLOP/s of {gpu.name}" for gpu in kinds)
    powers = " and ".join(f"{gpu.name}, {gpu.power_source}" for gpu in kinds)
    return (
        "plan: parallel sizes of most layers (mixed: not of all; searched: our own order), micro-batches x "
        "samples of each, over all replicas. =: within 1 % of those above, the simplest first. "
        "GiB: peak memory of one GPU. proved: 'makespan' where no schedule is shorter. MFU: three times the "
        f"operations of the forward pass, all scores counted, over the peak in {precision.name} precision, "
        f"{of_peak} (dense, data sheet). J/token: of all GPUs at the highest clocks, waiting included; "
        f"modelled, power of {powers}"
    )


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{',.0f' if value >= 1e5 else form}}{unit}"
