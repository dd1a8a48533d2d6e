from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_runs import GB_PER_S, links, write_runs
from told import told

from placements.files import write_json
from placements.measured.layer_profile import NotProfiledError
from placements.measured.link_fit import Coefficients, GpuGroup, LinkError, LinkFit, Links, read_links

FAST, SLOW = GpuGroup("fast", "east", 2), GpuGroup("slow", "west", 2)


def read(tmp_path: Path, between: dict[str, Any]) -> Links:
    folder = write_runs(tmp_path, between=between)
    return read_links(folder / "bandwidth/inter_node.json", folder / "bandwidth/intra_node.json")


@given(
    *(st.floats(-5, 5) for _ in range(2)),
    st.floats(0.01, 50),
    st.floats(1e6, 1e12),
    st.lists(st.floats(0, 1e12), min_size=2, max_size=5),
)
def test_more_bytes_take_longer_and_are_not_slower_each(
    second: float, first: float, constant: float, most: float, sizes: list[float]
) -> None:
    fit = LinkFit(Coefficients(second, first, constant), most)
    rates = [fit.bytes_per_s(size) for size in sorted(sizes)]
    assert all(0 < rate <= most for rate in rates)
    assert rates == sorted(rates)


def test_below_1_mb_a_fit_is_not_followed_to_less_than_nothing() -> None:
    """The fit of a real link: at 0.01 MB its quadratic is at -14 GB/s."""
    fit = LinkFit(Coefficients(-0.16570216, 2.79431173, 11.74409677), 22934533176.5)
    assert fit.bytes_per_s(1e4) == fit.bytes_per_s(1e6) == pytest.approx(11.74409677e9)
    assert fit.bytes_per_s(1e12) == 22934533176.5


def test_each_gpu_sends_its_share(tmp_path: Path) -> None:
    known = read(tmp_path, links(GB_PER_S))
    assert known.send_ms(FAST, SLOW, 1e9) == pytest.approx(1000)
    assert known.send_ms(FAST, GpuGroup("slow", "west", 8), 1e9) == pytest.approx(1000)


def test_a_link_measured_in_the_other_direction_or_another_zone_will_do(tmp_path: Path) -> None:
    between = links(GB_PER_S)
    del between["west"]
    known = read(tmp_path, between)
    assert known.send_ms(SLOW, FAST, 1e9) == pytest.approx(1000)
    assert known.send_ms(GpuGroup("fast", "north", 2), GpuGroup("fast", "north", 2), 1e9) == pytest.approx(
        1000
    )
    with pytest.raises(NotProfiledError, match="no bandwidth from fast in east to fast in north"):
        known.send_ms(FAST, GpuGroup("fast", "north", 2), 1)


def test_a_sum_goes_round_a_ring(tmp_path: Path) -> None:
    known = read(tmp_path, links(GB_PER_S))
    assert known.all_reduce_ms([FAST], 1e9) == 0
    assert known.all_reduce_ms([FAST, SLOW], 1e9) == pytest.approx(1000)
    assert known.all_reduce_ms([FAST] * 4, 1e9) == pytest.approx(2 * 3 * 250)


def test_a_gather_brings_what_others_have(tmp_path: Path) -> None:
    known = Links({}, {"fast": {4: LinkFit(Coefficients(0, 0, 1), 1e9)}})
    assert known.all_gather_ms(GpuGroup("fast", "east", 4), 1e9) == pytest.approx(750)
    assert known.all_gather_ms(GpuGroup("other", "east", 1), 1e9) == 0
    with pytest.raises(NotProfiledError, match="no bandwidth between the slow of a node"):
        known.all_gather_ms(SLOW, 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "links.json: [] is not a mapping; give one"),
        ({"east": {"fast": {"1": 3}}}, "east.fast.1: 3 is not a mapping"),
        (
            {"east": {"fast": {"x": {}}}},
            "east.fast: 'x' is not a number of GPUs that send or receive, a whole number",
        ),
        ({"e": {"f": {"1": {"e": {"f": {"1": [1, 2]}}}}}}, "e.f.1.e.f.1[0]: 1 is not [c2, c1, c0]"),
        (
            {"e": {"f": {"1": {"e": {"f": {"1": [[1, 2, 0], 1]}}}}}},
            "1[0][2]: 0 is not a number above 0; give it in GB/s",
        ),
        (
            {"e": {"f": {"1": {"e": {"f": {"1": [[1, 2, 3], 0]}}}}}},
            "1[1]: 0 is not a number of 1 or more; give it in bytes/s",
        ),
        (
            {"e": {"f": {"1": {"e": {"f": {"1": [[1, 2]]}}}}}},
            "is not [coefficients, max_bytes_per_s]; give 2 entries",
        ),
    ],
)
def test_wrong_links_are_a_line(tmp_path: Path, data: Any, message: str) -> None:
    with told(LinkError, match=re.escape(message)):
        read_links(write_json(tmp_path / "links.json", data), write_json(tmp_path / "in.json", {}))
