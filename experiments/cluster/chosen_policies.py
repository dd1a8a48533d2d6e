"""A policy by its name, with its own options."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from experiments.cluster.options import PolicyOptions
from experiments.config.options import require
from schedsearch.cluster.policies.policy import Policy
from schedsearch.cluster.policies.registry import policy_of
from schedsearch.cluster.policies.water_filling import Entity


def chosen_policy(name: str, options: PolicyOptions) -> Policy:
    """Return a new policy with the options that are given; null stands for the policy's default.

    Raises:
        OptionError: An option has a wrong form.
        ClusterError: The policy is not known, or has no such option.
    """
    given = {key: value for key, value in asdict(options).items() if value is not None}
    if "entities" in given:
        given["entities"] = _entities(given["entities"])
    return policy_of(name, **given)


def _entities(given: Any) -> dict[str, Entity]:
    """Return the entities that an option gives: their weights, or weight and policy of each."""
    found = {}
    for name, value in given.items():
        where = f"policy_options.entities.{name}"
        fields = value if isinstance(value, dict) else {"weight": value}
        wrong = [key for key in fields if key not in ("weight", "policy")]
        require(not wrong, where, value, "a weight", "write {weight: 2, policy: fifo}")
        weight = fields.get("weight", 1.0)
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        require(is_number, f"{where}.weight", weight, "a number", "give one")
        found[str(name)] = Entity(float(weight), fields.get("policy", "fairness"))
    return found
