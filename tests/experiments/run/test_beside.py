"""The usual baseline beside a GPT with its vocabulary on all devices: 1F1B on the V-shape."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir

from experiments.config.declaring import tell_hydra
from experiments.config.option_list import CONFIG
from experiments.run.beside import _chain_of
from experiments.search.options import SearchCommandOptions, read_options
from experiments.search.problem import read_problem


@pytest.mark.parametrize("given", [[], ["search.memory=60GiB"]])
def test_the_chain_of_a_gpt_has_its_own_states_in_the_same_memory(given: list[str]) -> None:
    tell_hydra("search")
    with initialize_config_dir(str(CONFIG), version_base="1.3"):
        options = read_options(
            compose("search", ["placement.vocab_size=50304", *given]), SearchCommandOptions
        )
    problem = read_problem(options)
    chain = _chain_of(options.placement, problem, options.search.num_micro_batches)
    assert chain.num_devices == problem.placement.num_devices
    assert all("H" not in block.name for block in chain.blocks)
    assert chain.memory == problem.placement.memory and chain.static != problem.placement.static
