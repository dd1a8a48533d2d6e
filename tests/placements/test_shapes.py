import pytest

from placements import PlacementError
from placements.placement_file import placement_to_yaml, read_placement
from placements.shapes import SHAPES
from schedsearch.baselines import gpipe
from schedsearch.bounds import load_bound
from schedsearch.picture import picture
from schedsearch.validate import validate


@pytest.mark.parametrize("name", SHAPES)
def test_picture_in_the_docstring_is_the_shape(name: str) -> None:
    drawn = "\n".join(line.strip() for line in SHAPES[name].__doc__.splitlines() if " | " in line)
    assert drawn == picture(validate(gpipe(SHAPES[name](), 1)))


@pytest.mark.parametrize(
    ("name", "load"), [("v_shape", 4), ("x_shape", 8), ("m_shape", 6), ("nn_shape", 8), ("k_shape", 6)]
)
@pytest.mark.parametrize("devices", [4, 8])
def test_every_device_has_the_same_work(name: str, load: int, devices: int) -> None:
    placement = SHAPES[name](devices)
    assert {placement.load(device) for device in range(devices)} == {load}
    assert load_bound(placement) == load


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("inference", [False, True])
def test_survives_the_file_form(name: str, inference: bool, tmp_path) -> None:
    placement = SHAPES[name](inference=inference).with_memory(5)
    path = tmp_path / "placement.yaml"
    path.write_text(placement_to_yaml(placement))
    assert read_placement(path) == placement


def test_a_k_shape_needs_two_devices() -> None:
    with pytest.raises(PlacementError, match="K-shape needs at least 2"):
        SHAPES["k_shape"](1)
