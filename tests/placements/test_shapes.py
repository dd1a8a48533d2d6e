from collections import Counter
from collections.abc import Callable

import pytest

from placements import Kind, Placement, PlacementError
from placements.placement_file import placement_to_yaml, read_placement
from placements.shapes import SHAPES, loop_shape, m_shape, v_shape, wave_shape, x_shape
from schedsearch.baselines import gpipe
from schedsearch.core.answer import Status
from schedsearch.picture import picture
from schedsearch.searches.search import search
from schedsearch.validate import validate


@pytest.mark.parametrize("name", SHAPES)
def test_picture_in_the_docstring_is_the_shape(name: str) -> None:
    drawn = "\n".join(line.strip() for line in SHAPES[name].__doc__.splitlines() if " | " in line)
    assert drawn == picture(validate(gpipe(SHAPES[name](), 1)))


@pytest.mark.parametrize("name", SHAPES)
def test_survives_the_file_form(name: str, tmp_path) -> None:
    placement = SHAPES[name]().with_memory(5)
    path = tmp_path / "placement.yaml"
    path.write_text(placement_to_yaml(placement))
    assert read_placement(path) == placement


def test_chunks_stand_in_a_wave_or_a_loop() -> None:
    wave, loop = wave_shape(3, num_chunks=3), loop_shape(3, num_chunks=3)
    assert [wave.by_name[f"F{i}"].devices[0] for i in range(9)] == [0, 1, 2, 2, 1, 0, 0, 1, 2]
    assert [loop.by_name[f"B{i}"].devices[0] for i in range(9)] == [0, 1, 2, 0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("shape", [v_shape, x_shape, wave_shape, loop_shape])
def test_a_split_backward_is_two_halves_on_one_device(shape: Callable[..., Placement]) -> None:
    placement = shape(3, split_backward=True, input_time=2, weight_time=5, stage_memory=4, input_release=1)
    kinds = Counter(block.kind for block in placement.blocks)
    assert kinds[Kind.F] == kinds[Kind.I] == kinds[Kind.W] > 0 == kinds[Kind.B]
    for weight in placement.blocks:
        if weight.kind is Kind.W:
            (half,) = (placement.by_name[name] for name in weight.after)
            assert (half.kind, half.devices) == (Kind.I, weight.devices)
            assert (half.time, weight.time) == (2, 5)
            assert (half.memory, weight.memory) == (-1, -3)
            assert placement.successors[weight.name] == ()


@pytest.mark.parametrize(
    ("shape", "memory", "period"),
    [(v_shape, 2, 5), (v_shape, 4, 3), (x_shape, 2, 8), (wave_shape, 2, 12), (wave_shape, 4, 6)],
)
def test_split_shapes_have_the_proven_period(
    shape: Callable[..., Placement], memory: int, period: int
) -> None:
    """Values proved by another solver, for F, I and W of one tick each and memory released by W."""
    placement = shape(4, split_backward=True).with_memory(memory)
    result = search(placement, 4, micro_batches_per_repetend=1, objectives=["period"])
    assert (result.status, result.repetend.period) == (Status.OPTIMAL, period)


def test_memory_that_the_input_half_gives_back_serves_sooner() -> None:
    """If I releases all of it, a V-shape needs the memory of a whole backward."""
    placement = v_shape(4, split_backward=True, input_release=1)
    for memory, period in {2: 4, 3: 4, 4: 3}.items():
        result = search(placement.with_memory(memory), 4, micro_batches_per_repetend=1, objectives=["period"])
        assert (result.status, result.repetend.period) == (Status.OPTIMAL, period)


@pytest.mark.parametrize(
    ("shape", "wrong", "message"),
    [
        (wave_shape, {"num_chunks": 0}, "num_chunks: 0 is not at least 1"),
        (wave_shape, {"stage_memory": -1}, "stage_memory: -1 is not at least 0; give one"),
        (wave_shape, {"split_backward": True, "input_release": 2}, "input_release: 2 is not at least 0 and"),
        (m_shape, {"num_devices": 0}, "num_devices: 0 is not at least 1"),
        (SHAPES["k_shape"], {"num_devices": 1}, "K-shape needs at least 2"),
    ],
)
def test_wrong_options(shape: Callable[..., Placement], wrong: dict[str, int], message: str) -> None:
    with pytest.raises(PlacementError, match=message):
        shape(**{"num_devices": 4, **wrong})
