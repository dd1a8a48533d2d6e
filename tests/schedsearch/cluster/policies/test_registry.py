import pytest

from schedsearch.cluster.gpu_cluster import ClusterError
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
