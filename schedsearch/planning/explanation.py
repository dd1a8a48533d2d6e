"""A planner's choice and its reasons, in words: stages, layers, what else there was, what ran out of memory.

The module knows Markdown. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from placements.cluster import Cluster
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy
from placements.planners.hybrid.plan_options import Obstacle, Trial
from placements.planners.hybrid.stage_tables import LayerCosts, layer_table
from schedsearch.core.answer import Status
from schedsearch.planning.plans import Plans, ProposedPlan, RankedPlan

_OTHERS = 3
"""Other strategies of a layer that are shown."""


def explain(plans: Plans, costs_in_words: str = "") -> str:
    """Return the best plan, why each layer is shared as it is, and what was tried, as Markdown.

    Args:
        plans: What was found.
        costs_in_words: Where the costs are from.
    """
    lines = [f"# {plans.model.name} on {in_words(plans.cluster)}", ""]
    if not plans.proposed:
        lines += ["No plan was found before the interruption.", ""]
        return "\n".join([*lines, *_trials(plans)])
    best = plans.best
    lines += [f"Best plan: {best.name}.", "", *_headline(plans, best), ""]
    lines += [f"{costs_in_words[:1].upper()}{costs_in_words[1:]}.", ""] if costs_in_words else []
    lines += ["## Stages", "", *_stages(best, plans), ""]
    lines += ["## Why the layers are shared so", "", *_layers(best, plans), ""]
    lines += ["## Ranking", "", *_ranking(plans), ""]
    lines += ["## What was tried", "", *_trials(plans)] if plans.searches else []
    return "\n".join(lines) + "\n"


def in_words(cluster: Cluster) -> str:
    """Return the machines of a cluster in words."""
    nodes = " and ".join(f"{each.num_nodes} x {each.gpus_per_node} {each.gpu.name}" for each in cluster.nodes)
    if sum(each.num_nodes for each in cluster.nodes) == 1:
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
    parts = []
    if strategy.tensor_parallel > 1:
        name = "ulysses" if strategy.sequence == "ulysses" else "tp"
        parts.append(
            f"{name} {strategy.tensor_parallel}" + (" (apart)" if not strategy.tensor_innermost else "")
        )
    if strategy.sequence == "megatron" and strategy.tensor_parallel > 1:
        parts[-1] += " with sequence parallel"
    if strategy.context_parallel > 1:
        parts.append(f"cp {strategy.context_parallel}")
    if strategy.data_parallel > 1:
        parts.append(f"dp {strategy.data_parallel}")
    if strategy.zero and parts:
        parts[-1] += f" (ZeRO-{strategy.zero})"
    if strategy.expert_parallel > 1:
        whole = " (whole experts)" if strategy.whole_experts else ""
        parts.append(f"ep {strategy.expert_parallel}{whole}")
    if strategy.recompute != "none":
        parts.append("recomputed" if strategy.recompute == "full" else "attention recomputed")
    return ", ".join(parts) or "one GPU"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as a Markdown table; the first is its head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    shown = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return [shown[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *shown[1:]]


def _headline(plans: Plans, best: ProposedPlan) -> Iterator[str]:
    plan, ranked = best.plan, best.ranked
    formula = (
        f" By the formula an iteration takes {best.formula_ms:,.5g} ms, "
        f"{best.formula_samples_per_s:.4g} samples/s."
        if best.formula_ms is not None
        else ""
    )
    yield (
        f"{plan.global_batch_size} samples in {plan.num_micro_batches} micro-batches of "
        f"{plan.micro_batch_size}; "
        f"{best.num_gpus} of {plans.cluster.num_gpus} GPUs.{formula}"
    )
    if ranked is not None and ranked.iteration_ms is not None:
        hand_made = "" if ranked.one_f_one_b_ms is None else f"; 1F1B takes {ranked.one_f_one_b_ms:,.5g} ms"
        yield (
            f"Its searched schedule takes {ranked.iteration_ms:,.5g} ms ({_proved(ranked)}{hand_made}), "
            f"{best.samples_per_s:.4g} samples/s."
        )


def _proved(ranked: RankedPlan) -> str:
    if ranked.status is Status.OPTIMAL:
        return "makespan proved"
    return f"not proved, bound {ranked.iteration_bound_ms:,.5g} ms"


def _stages(best: ProposedPlan, plans: Plans) -> Iterator[str]:
    plan = best.plan
    rows = [["stage", "GPUs", "layers", "ms", "update ms", "peak GiB", "in flight"]]
    figures = zip(best.capacities_gib(plans.options), best.peaks_mib, best.in_flight, strict=True)
    for number, (capacity_gib, peak_mib, in_flight) in enumerate(figures):
        gpus, estimate = plan.stages[number].gpus, best.rated.stages[number]
        runs = [
            f"{count} {each.name}{'s' * (count > 1)}: {strategy_in_words(how)}"
            for each, how, count in plan.runs(number)
        ]
        rows.append(
            [
                str(number),
                "-".join(str(gpu) for gpu in dict.fromkeys((gpus.start, gpus.stop - 1))),
                "; ".join(runs),
                f"{estimate.time_ms:.4g}",
                f"{estimate.update_ms:.4g}",
                f"{peak_mib / 1024:.1f} of {capacity_gib:.1f}",
                str(in_flight),
            ]
        )
    yield "ms: of a micro-batch, forward and backward. Peak: of one GPU"
    yield "with the schedule. In flight: micro-batches begun and not ended."
    yield ""
    yield from table(rows)
    shared = best.shared
    if shared is not None:
        runs = [
            f"{len(list(equal))} {name}" for name, equal in groupby(shared.layers, lambda each: each.name)
        ]
        yield ""
        yield (
            f"On all GPUs besides: {', '.join(runs)}: {strategy_in_words(shared.strategy)}; "
            f"{shared.time_ms:.4g} ms per micro-batch, {shared.held_mib / 1024:.2g} GiB of each GPU, which "
            "the peaks count."
        )


def _layers(best: ProposedPlan, plans: Plans) -> Iterator[str]:
    """Yield, for each kind of layer and strategy of a stage, what it costs beside the fastest others."""
    head = "stage,layer,strategy,ms,of it copies,update ms,states GiB,kept GiB,and then"
    rows = [head.split(",")]
    seen: set[object] = set()
    plan = best.plan
    for number in range(plan.num_stages):
        for layer, chosen, count in plan.runs(number):
            key = (layer, chosen, plan.group(number).pattern, best.rated.stages[number].in_flight)
            if key not in seen:
                seen.add(key)
                rows += _choices(best, plans, number, layer, chosen, count)
    yield "Time of one micro-batch through one layer, and of the layer's update, once in an iteration."
    yield "Below each the fastest other ways: how much longer a micro-batch through all these layers is,"
    yield "with its share of the update and without what a change of layout costs, and the peak of a GPU."
    yield ""
    yield from table(rows)


def _choices(
    best: ProposedPlan,
    plans: Plans,
    number: int,
    layer: Layer,
    chosen: LayerStrategy,
    count: int,
) -> Iterator[list[str]]:
    plan, in_flight = best.plan, best.in_flight[number]
    group, m = plan.group(number), plan.num_micro_batches
    costs: LayerCosts = plans.costs
    options = plans.options.trees
    found = layer_table(costs, layer, options, plan.micro_batch_size, m, group)
    by_strategy = dict(zip(found.strategies, found.costs, strict=True))
    own = by_strategy.get(chosen) or costs.cost(layer, chosen, plan.micro_batch_size, m, group)
    capacity_mib = best.capacities_gib(plans.options)[number] * 1024

    def whole_ms(cost: Cost) -> float:
        return cost.forward.time_ms + cost.backward.time_ms + cost.update_ms / m

    others = sorted(
        (each for each in by_strategy if each != chosen), key=lambda each: whole_ms(by_strategy[each])
    )[:_OTHERS]
    for strategy in (chosen, *others):
        cost = own if strategy == chosen else by_strategy[strategy]
        time_ms = cost.forward.time_ms + cost.backward.time_ms
        held = count * (
            (cost.static_bytes - own.static_bytes) + in_flight * (cost.kept_bytes - own.kept_bytes)
        )
        peak_mib = best.peaks_mib[number] + held / 2**20
        verdict = "chosen"
        if strategy != chosen:
            longer = count * (whole_ms(cost) - whole_ms(own))
            fits = "" if peak_mib <= capacity_mib else ", which does not fit"
            verdict = f"{longer:+.3g} ms, {peak_mib / 1024:.1f} GiB{fits}"
        yield [
            str(number),
            layer.name,
            strategy_in_words(strategy),
            f"{time_ms:.4g}",
            f"{(cost.forward.copy_ms + cost.backward.copy_ms) / time_ms:.0%}" if time_ms else "",
            f"{cost.update_ms:.3g}",
            f"{cost.static_bytes / 2**30:.3g}",
            f"{cost.kept_bytes / 2**30:.3g}",
            verdict,
        ]


def ranking(plans: Plans, is_brief: bool = False) -> list[list[str]]:
    """Return the plans in order as rows of text; the first is the head.

    Args:
        plans: What was found.
        is_brief: Without the formula, bounds and 1F1B, to fit in 80 columns.
    """
    others = {"formula ms": "formula_ms", "bound ms": "iteration_bound_ms", "1F1B ms": "one_f_one_b_ms"}
    rows = [
        ["plan", "ms", "samples/s", "tokens/s/GPU", "MFU", "GiB", "proved", *({} if is_brief else others)]
    ]
    for row in plans.rows():
        time_ms = row["formula_ms"] if row["iteration_ms"] is None else row["iteration_ms"]
        rows.append(
            [
                str(row["name"]),
                ("=" if row["equal"] else "")
                + _number(time_ms, ",.0f" if time_ms and time_ms >= 1e5 else ",.5g"),
                _number(row["samples_per_s"], ",.4g"),
                _number(row["tokens_per_s_per_gpu"], ",.5g"),
                _number(row["mfu_percent"], ".1f", " %"),
                _number(row["peak_memory_mib"] / 1024, ".1f"),
                str(row["proved"] or "formula")
                + (f": {row['note']}" if row["note"] and not is_brief else ""),
                *([] if is_brief else [_number(row[name], ",.5g") for name in others.values()]),
            ]
        )
    return rows


def legend(plans: Plans) -> str:
    """Return what the columns of a ranking are."""
    precision = plans.model.precision
    peaks = {each.gpu.name: precision.peak_tflops(each.gpu) for each in plans.cluster.nodes}
    of_peak = " and ".join(f"{peak:g} TFLOP/s of {name}" for name, peak in peaks.items())
    return (
        "plan: how most layers are shared (mixed: not all), micro-batches x samples of each. =: within 1 % "
        "of those above, the simplest first. GiB: peak memory of one GPU. proved: 'makespan' where no "
        "schedule of the plan is shorter. MFU: three times the operations of the forward pass over the peak "
        f"in {precision.name} precision, {of_peak} (dense, data sheet)"
    )


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{form}}{unit}"


def _ranking(plans: Plans) -> Iterator[str]:
    """Yield the plans in order, by the formula and by their schedules."""
    yield from table(ranking(plans))
    yield ""
    yield f"{legend(plans)}."
    for line in plans.left_out:
        yield ""
        yield f"Left out: {line}."


def _trials(plans: Plans) -> Iterator[str]:
    """Yield the best of each number of stages and GPUs, or why there is no plan with them."""
    rows = [["batch", "stages", "GPUs each", "micro-batches", "ms", "why not"]]
    best: dict[tuple[int, int, int], Trial] = {}
    for batch, trial in plans.trials:
        key = (batch, trial.num_stages, trial.gpus_per_stage)
        known = best.get(key)
        if known is None or _rank_of(trial) < _rank_of(known):
            best[key] = trial
    solved = [item for item in best.items() if not item[1].fails_by(Obstacle.BOUND)]
    for (batch, stages, gpus), trial in sorted(solved, key=lambda item: _rank_of(item[1])):
        time_ms = "" if trial.time_ms is None else f"{trial.time_ms:,.5g}"
        rows.append([str(batch), str(stages), str(gpus), str(trial.num_micro_batches), time_ms, trial.reason])
    yield from table(rows)
    yield ""
    bounded = sum(trial.fails_by(Obstacle.BOUND) for _, trial in plans.trials)
    if bounded:
        yield f"{bounded} of {len(plans.trials)} rows were not solved: none of their plans can be better."


def _rank_of(trial: Trial) -> tuple[float, float]:
    return (trial.time_ms if trial.time_ms is not None else float("inf"), trial.bound_ms)
