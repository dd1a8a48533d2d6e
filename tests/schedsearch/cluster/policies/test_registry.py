import pytest

from schedsearch.cluster.allocation import check_allocation
from schedsearch.cluster.demand import Demand
from schedsearch.cluster.gpu_cluster import ClusterError, GpuCluster
from schedsearch.cluster.policies.registry import ALIASES, POLICIES, policy_of


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_has_the_name_that_it_is_known_by(name: str) -> None:
    assert policy_of(name).name == name
    assert policy_of(name).shares_space == (name.endswith("packed") or name == "gandiva")


@pytest.mark.parametrize(("theirs", "ours"), ALIASES.items())
def test_gavels_names_are_known_too(theirs: str, ours: str) -> None:
    assert theirs not in POLICIES
    assert policy_of(theirs).name == ours


def test_an_unknown_name_is_answered_with_the_nearest_first() -> None:
    with pytest.raises(ClusterError) as error:
        policy_of("makespn")
    assert str(error.value).startswith("policy: 'makespn' is not known; use one of makespan, ")
    assert all(name in str(error.value) for name in POLICIES)
    assert "\n" not in str(error.value)


def test_an_unknown_option_is_answered_with_those_there_are() -> None:
    with pytest.raises(ClusterError, match="policy las has no option 'weight'; it has none"):
        policy_of("las", weight=2)
    with pytest.raises(ClusterError, match="policy min_cost has no option 'weight'; it has aim"):
        policy_of("min_cost", weight=2)


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_is_asked_and_nothing_is_given(name: str) -> None:
    cluster = GpuCluster({"v100": 2, "k80": 1}, {"v100": 2.48, "k80": 0.45})
    allocation = policy_of(name).allocate(Demand.of(cluster, [], []))
    check_allocation(allocation)
    assert len(allocation.shares) == 0
