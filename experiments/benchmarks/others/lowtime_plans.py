"""The plans of lowtime, the solver that Perseus's authors publish, with real clocks on our own graph.

lowtime 0.3.0 is optional. It rounds times down to whole units, so its own times are shorter than possible;
here only the clocks that it assigns are taken, and every plan is simulated as ours are. It is known to fail
on blocks with one to three clocks, and where a unit is a large share of a block's time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from schedsearch.energy import CostCurve, InstanceGraph
from schedsearch.energy.graph import Ints


def lowtime_clocks(graph: InstanceGraph, curves: Mapping[str, CostCurve], unit_ms: float) -> Ints:
    """Return the clocks that lowtime gives each instance, from its slowest plan to its fastest.

    Args:
        graph: Precedence graph of the blocks; its delays must be 0, since lowtime knows none.
        curves: Cost curve of each block; effective energies, as in the authors' own script.
        unit_ms: By how much each step shortens the iteration.

    Returns:
        MHz; shape ``(instances, plans)``.
    """
    from lowtime.cost_model import ExponentialModel
    from lowtime.graph_utils import add_sink_node, add_source_node
    from lowtime.operation import CandidateExecutionOptions, ExecutionOption, Operation, OperationSpec
    from lowtime.solver import PhillipsDessouky
    from networkx import DiGraph

    if any(delay for _, _, delay in graph.edges):
        raise ValueError("graph: has delays, which lowtime does not know")
    specs = {}
    for name, curve in curves.items():
        points = zip(curve.time_ms.tolist(), curve.energy_mj.tolist(), curve.clocks, strict=True)
        options = [
            ExecutionOption(real_time=ms / 1e3, unit_time=unit_ms / 1e3, cost=mj / 1e3, knob=mhz)
            for ms, mj, mhz in points  # in seconds and joules
        ]
        candidates = CandidateExecutionOptions(options=options)
        model = ExponentialModel(candidates, search_strategy="best")
        specs[name] = OperationSpec(options=candidates, cost_model=model)
    operations = [Operation(spec=specs[name]) for name, _ in graph.instances]
    dag = DiGraph()
    dag.add_nodes_from((i, {"op": operation}) for i, operation in enumerate(operations))
    dag.add_edges_from((a, b) for a, b, _ in graph.edges)
    add_source_node(dag, -1)
    add_sink_node(dag, -2)
    dag.graph["source_node"], dag.graph["sink_node"] = -1, -2
    plans = [[operation.assigned_knob for operation in operations]]
    for _ in PhillipsDessouky(dag).run():
        plans.append([operation.assigned_knob for operation in operations])
    return np.array(plans, dtype=np.int64).T
