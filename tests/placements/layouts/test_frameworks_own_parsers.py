"""What we write, read by the frameworks themselves: megatron-core 0.16 and torchtitan 0.3.0, where installed.

``pip install megatron-core==0.16.0 torchtitan==0.3.0`` beside this project, then run this file; see
`docs/concepts/megatron.md`. Nothing here runs without them.
"""

from __future__ import annotations

import importlib
from dataclasses import make_dataclass
from typing import Any

import pytest
from published_layouts import PUBLISHED

from placements.layouts.layout import LayoutError, even_layout
from placements.layouts.megatron_log import read_log
from placements.layouts.megatron_notation import check_megatron, read_notation, write_notation
from placements.layouts.torchtitan_parts import write_job, write_parts


def module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} is not installed: {error}")


@pytest.fixture
def theirs() -> Any:
    """The class of megatron-core that reads a layout."""
    return module("megatron.core.transformer.pipeline_parallel_layer_layout").PipelineParallelLayerLayout


LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


@pytest.mark.parametrize(("text", "num_devices", "num_layers", "num_mtp"), PUBLISHED)
def test_megatron_reads_what_we_write(
    text: str, num_devices: int, num_layers: int, num_mtp: int, theirs: Any
) -> None:
    ours = read_notation(text, num_devices)
    found = theirs(write_notation(ours), num_devices)
    found.validate_layer_layout(num_layers, num_mtp or None)
    for i, stage in enumerate(ours.stages):
        chunk, rank = divmod(i, num_devices)
        assert "".join(LETTERS[each.name] for each in found.layout[rank][chunk]) == stage


@pytest.mark.parametrize(
    ("text", "num_layers"),
    [
        ("tE|tL", 2),
        ("Et|ttt", 4),
        ("Et|tL", 3),
        ("Et|tmL", 2),
        ("Et|tx|", 2),
        ("Et|t|L", 2),
        ("Etm|t|L|", 2),
        ("Ettm|mL", 2),
    ],
)
def test_megatron_refuses_what_we_refuse_in_the_same_words(text: str, num_layers: int, theirs: Any) -> None:
    num_mtp = text.count("m") or None if text not in ("Et|tmL",) else None
    with pytest.raises(AssertionError) as their_error:
        theirs(text, 2).validate_layer_layout(num_layers, num_mtp)
    with pytest.raises(LayoutError) as our_error:
        check_megatron(read_notation(text, 2), num_layers, num_mtp)
    words = str(their_error.value).split("(")[0].strip()
    assert words in str(our_error.value)


def test_torchtitan_splits_a_model_by_our_lists() -> None:
    titan = module("torchtitan.distributed.pipeline_parallel")
    torch = module("torch")
    even = even_layout(2, 2, "E" + "t" * 8 + "L")
    assert even is not None
    lists = write_parts(even)
    theirs = titan._generate_llm_fqn_per_model_part(4, 8, 0, 0)
    assert lists == theirs
    model = torch.nn.Module()
    model.tok_embeddings = torch.nn.Embedding(8, 4)
    model.layers = torch.nn.ModuleDict({str(i): torch.nn.Linear(4, 4) for i in range(8)})
    model.norm, model.lm_head = torch.nn.LayerNorm(4), torch.nn.Linear(4, 8)
    for names in lists:
        part = titan._split_module(model, names)
        kept = [name for name, child in part.named_children() if name != "layers" and child is not None]
        kept += [f"layers.{name}" for name in part.layers]
        assert sorted(kept) == sorted(names)


def test_torchtitans_command_line_takes_our_flags() -> None:
    """By torchtitan's rules for tyro, without a model, which needs many more packages."""
    manager, configs, tyro = module("torchtitan.config.manager"), module("torchtitan.config"), module("tyro")
    manager.ConfigManager()  # which adds its rules
    for chunks in (1, 2):
        even = even_layout(2, chunks, "E" + "t" * 8 + "L")
        assert even is not None
        words = []
        for name, value in write_job(even).items():
            words += [name, *(value if isinstance(value, list) else [str(value)])]
        job = make_dataclass("Job", [("parallelism", configs.ParallelismConfig)])
        config = tyro.cli(job, args=words, registry=manager.custom_registry).parallelism
        assert config.module_fqns_per_model_part == write_parts(even)
        assert config.pipeline_parallel_degree == 2
        assert config.pipeline_parallel_schedule == ("1F1B", "Interleaved1F1B")[chunks - 1]


@pytest.mark.parametrize("option", ["all", "minmax"])
def test_we_read_what_megatrons_timers_print(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their text of an iteration of 4 micro-batches, below arguments as its training script prints them."""
    timers, torch = module("megatron.core.timers").Timers(2, option), module("torch")
    seconds = torch.tensor([[0.016, 0.032], [0.016, 0.032], [0.024, 0.04]])
    monkeypatch.setattr(timers, "_get_elapsed_time_all_ranks", lambda *_: seconds)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *_: 3)
    arguments = {"num_layers": 6, "pipeline_model_parallel_size": 3, "data_parallel_size": 1}
    arguments |= {"global_batch_size": 4, "micro_batch_size": 1}
    text = "".join(f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in arguments.items())
    text += timers.get_all_timers_string(["forward-compute", "backward-compute"])
    found = read_log(text)
    assert found.parts == ("Ett", "tt", "ttL")
    assert found.forward_ms == pytest.approx((4, 4, 6))
    assert found.backward_ms == pytest.approx((8, 8, 10))
