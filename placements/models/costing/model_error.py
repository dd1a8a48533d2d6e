"""How far modelled times of layers are from measured ones.

The module does not know a plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from placements.block import PlacementError
from placements.cluster import Cluster
from placements.models.calibration import Calibration
from placements.models.costing.layer_costs import layer_cost
from placements.models.costing.options import USUAL, CostOptions
from placements.models.layers import Layer
from placements.models.parallel import LayerStrategy


def model_error_percent(
    calibration: Calibration, layers: Iterable[Layer], cluster: Cluster, options: CostOptions = USUAL
) -> float:
    """Return how far modelled forwards and backwards are from measured ones, on average.

    Args:
        calibration: The measured times.
        layers: Those with a name that it does not have are left out.
        cluster: Cluster on whose first GPUs they were measured.
        options: What the model assumes.

    Returns:
        Mean of absolute errors, in percent of each measured time.

    Raises:
        PlacementError: No layer was measured, or one cannot be shared by as many GPUs.
    """
    modelled = replace(options, calibration=None)
    errors = []
    for layer in set(layers):
        for degree, rows in calibration.times.get(layer.name, {}).items():
            for row in rows:
                cost = layer_cost(
                    layer, LayerStrategy(degree), row.samples, 1, cluster.group(0, degree), modelled
                )
                errors.append(abs(cost.forward.time_ms / row.forward_ms - 1))
                errors.append(abs(cost.backward.time_ms / row.backward_ms - 1))
    if not errors:
        raise PlacementError(f"layers: none of them was measured; give one of {', '.join(calibration.times)}")
    return 100 * fmean(errors)
