from dataclasses import dataclass
from typing import ClassVar

import pytest
from cluster.policies.cases import case_of
from one_line_errors import raises_line

from schedsearch.cluster.allocation import check_allocation
from schedsearch.cluster.demand import Demand, FloatArray
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.policies.policy import SharesPolicy, worth
from schedsearch.cluster.policies.program import AllocationProgram
from schedsearch.cluster.policies.registry import ALIASES, POLICIES, policy_forms, policy_of


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_has_the_name_that_it_is_known_by(name: str) -> None:
    assert policy_of(name).name == name
    assert policy_of(name).shares_space == (name.endswith("packed") or name == "gandiva")


@pytest.mark.parametrize(("theirs", "ours"), ALIASES.items())
def test_gavels_names_are_known_too(theirs: str, ours: str) -> None:
    assert theirs not in POLICIES
    assert policy_of(theirs).name == ours


def test_an_unknown_name_is_answered_with_the_nearest_first() -> None:
    for name in POLICIES:
        with raises_line(ClusterError, "policy: 'makespn' is not known; use one of makespan, ", has=name):
            policy_of("makespn")


def test_an_unknown_option_is_answered_with_those_there_are() -> None:
    with pytest.raises(ClusterError, match="policy las has no option 'weight'; it has none"):
        policy_of("las", weight=2)
    with pytest.raises(ClusterError, match="makespan_budget has no option 'weight'; it has budget_dollars"):
        policy_of("makespan_budget", weight=2)


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_is_asked_and_nothing_is_given(name: str) -> None:
    cluster = GpuCluster({"v100": 2, "k80": 1}, {"v100": 2.48, "k80": 0.45})
    allocation = policy_of(name).allocate(Demand.of(cluster, [], []))
    check_allocation(allocation)
    assert len(allocation.shares) == 0


@dataclass(frozen=True)
class LongestFirst(SharesPolicy):
    """Maximizes the sum of steps left x throughput / throughput on the fastest type (docs/extending.md)."""

    term: ClassVar[str] = "longest_first"

    def _best(self, demand: Demand) -> tuple[FloatArray, float]:
        values = worth(demand, demand.steps_left)
        shares = AllocationProgram(demand).maximize(values)
        return shares, float(values @ shares)


def test_a_policy_is_a_class_and_a_line_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, entry in policy_forms(LongestFirst, "the longest job first").items():
        monkeypatch.setitem(POLICIES, name, entry)  # type: ignore[arg-type]
    demand = case_of([1, 1], [[2.0, 1.0], [2.0, 1.0]]).demand()
    for name in ("longest_first", "longest_first_agnostic", "longest_first_packed"):
        policy = policy_of(name)
        assert policy.name == name
        check_allocation(policy.allocate(demand))
    assert policy_of("longest_first").allocate(demand).objective == pytest.approx(1500.0)
