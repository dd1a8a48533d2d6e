"""A state dict is read and written part by part, and comes back as it was; wrong files are one line."""

import resource
import runpy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import safetensors.torch
import torch
from one_line_errors import raises_line
from small_runs import NETWORK, SMALL_GPT, comparison_of, trained
from torch import Tensor, nn

from placements import Placement
from placements.shapes import k_shape, m_shape, v_shape
from runtime.models import Model, ModelOptions, load_state_dict_file, save_state_dict_file, suitable_model
from runtime.models.core.parameters import initial_values
from runtime.models.state_dict import StateDictError, check_state_dict_file
from runtime.program.calls import ScriptError
from runtime.program.lower import lower
from runtime.transport.in_memory import MemoryTransport, Network
from schedsearch.baselines import one_f_one_b


@pytest.fixture
def network(tmp_path: Path) -> Callable[[], tuple[ModelOptions, nn.Module]]:
    """Return a function that returns the options of the network, and one that is not pipelined."""

    def make() -> tuple[ModelOptions, nn.Module]:
        path = tmp_path / "model.py"
        path.write_text(NETWORK)
        torch.manual_seed(5)
        module: nn.Module = runpy.run_path(str(path))["Network"]()
        return ModelOptions("module", path=str(path), dtype="float32", learning_rate=0.5), module

    return make


def test_pretrained_weights_come_back_into_the_unpipelined_module(
    network: Callable[[], tuple[ModelOptions, nn.Module]], tmp_path: Path
) -> None:
    options, module = network()
    before, after = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    with torch.no_grad():
        module.get_buffer("mask").mul_(0.5)  # what a file says of a buffer counts too
    safetensors.torch.save_model(module, str(before))  # which has the shared table once
    programs = lower(one_f_one_b(v_shape(3), 4))
    result = trained(programs, options, launcher="fork", load_weights=before, save_weights=after)
    assert comparison_of(result).bitwise_equal
    saved = safetensors.torch.load_file(after)
    assert saved.keys() == module.state_dict().keys()
    other = runpy.run_path(str(options.path))["Network"]()
    other.load_state_dict(saved)
    unmoved = tmp_path / "unmoved.safetensors"
    trained(programs, replace(options, learning_rate=0.0), None, 1, load_weights=after, save_weights=unmoved)
    same = safetensors.torch.load_file(unmoved)
    assert all(torch.equal(same[name], value) for name, value in saved.items())


def _models(options: ModelOptions, placement: Placement, network: Network) -> list[Model]:
    """Return the model of each device."""
    devices = [MemoryTransport.of(network, placement, (), n) for n in range(placement.num_devices)]
    return [Model(options, placement, device.shards, groups=device.groups) for device in devices]


def _save_together(models: list[Model], path: Path, network: Network) -> None:
    """Save as processes do."""
    collect = [MemoryTransport(network, n, frozenset()).collect for n in range(len(models))]
    network.run([partial(save_state_dict_file, m, path, collect[n], n == 0) for n, m in enumerate(models)])


@pytest.mark.parametrize(("placement", "dtype"), [(m_shape(3), "float64"), (k_shape(), "bfloat16")])
def test_shards_of_our_models_are_put_together_and_taken_apart(
    placement: Placement, dtype: str, tmp_path: Path
) -> None:
    name = suitable_model(placement)
    options = ModelOptions.from_dict(
        SMALL_GPT | {"name": name, "dtype": dtype, "num_layers": 4, "num_heads": 4, "vocab_size": 257}
    )
    path = tmp_path / "weights.safetensors"
    network = Network(placement.num_devices)
    models = _models(options, placement, network)
    _save_together(models, path, network)
    tensors = safetensors.torch.load_file(path)
    body = models[0].body
    names = {p.name: p for block in models for b in block.groups for p in body.parameters(b)}
    assert tensors.keys() == names.keys()
    for key, parameter in names.items():
        assert torch.equal(tensors[key], initial_values(parameter, 0).to(getattr(torch, dtype)))
    check_state_dict_file(path, options, placement)
    others = _models(replace(options, seed=1), placement, network)
    for model, other in zip(models, others, strict=True):
        load_state_dict_file(other, path)
        assert all(torch.equal(other.parameters[shard], weight) for shard, weight in model.parameters.items())


def prefixed(state: dict[str, Tensor]) -> None:
    """Name the tensors as DistributedDataParallel does."""
    for name in list(state):
        state[f"module.{name}"] = state.pop(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda state: state.pop("layers.2.bias"),
            r"lacks 'layers.2.bias' of shape \(6,\); give the model's",
        ),
        (prefixed, r"lacks '(\S+)' of shape \(.*\); it has 'module\.\1': take 'module\.' off the names"),
        (
            lambda state: state.update(more=torch.zeros(2)),
            "has 'more', which the model does not; leave it out",
        ),
        (
            lambda state: state.update(scale=torch.zeros(5)),
            r"'scale' has shape \(5,\), in the model \(6,\); give weights of a model of these",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(
    change: Callable[[dict[str, Tensor]], object],
    message: str,
    network: Callable[[], tuple[ModelOptions, nn.Module]],
    tmp_path: Path,
) -> None:
    options, module = network()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    change(state)
    path = tmp_path / "wrong.safetensors"
    safetensors.torch.save_file(state, path)
    with raises_line(StateDictError, match=f"{path}:? {message}"):
        check_state_dict_file(path, options, v_shape(3))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.safetensors", None, "none.safetensors is not a file; give a state dict"),
        ("empty.safetensors", b"", "is not a whole file of safetensors"),
        ("half.safetensors", b"\x40\x00\x00\x00\x00\x00\x00\x00{}", "is not a whole file of safetensors"),
    ],
)
def test_what_is_no_file_of_tensors_is_one_line(
    name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    options, path = ModelOptions.from_dict(SMALL_GPT), tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with raises_line(StateDictError, match=message):
        check_state_dict_file(path, options, v_shape(2))


@pytest.mark.parametrize("name", ["weights.pt", "none/weights.safetensors"])
def test_weights_cannot_be_saved_just_anywhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="save_weights: .* give "):
        trained(lower(one_f_one_b(v_shape(2), 2)), SMALL_GPT, save_weights=tmp_path / name)


def test_weights_for_which_there_is_no_room_leave_nothing(tmp_path: Path) -> None:
    """A torn file would take the room that the next try needs; the file of before stays."""
    path = tmp_path / "weights.safetensors"
    path.write_bytes(b"before")
    network = Network(2)
    models = _models(ModelOptions.from_dict(SMALL_GPT), v_shape(2), network)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StateDictError, match=r"cannot be written \(.*File too large"):
            _save_together(models, path, network)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"before"
