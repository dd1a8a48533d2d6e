"""TODO."""

from schedsearch.bounds.load_and_path import critical_path, least_period, load_bound, period_bound
from schedsearch.bounds.memory_need import CapacityError, least_in_use, minimum_memory, require_capacity

__all__ = [
    "CapacityError",
    "critical_path",
    "least_in_use",
    "least_period",
    "load_bound",
    "minimum_memory",
    "period_bound",
    "require_capacity",
]
