"""How often Hydra composes the config of a command."""

from __future__ import annotations

import pytest
from hydra._internal.hydra import Hydra

from experiments.config import composing
from experiments.config.composing import compose_once


@pytest.fixture(autouse=True)
def hydra_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hydra, "get_mode", Hydra.get_mode)


@pytest.mark.parametrize("given", [[], ["search.memory=3"], ["hydra.run.dir=out"], ["-m", "search.seed=1,2"]])
def test_nothing_is_composed_to_find_a_mode_that_no_config_sets(given: list[str]) -> None:
    compose_once(given)
    assert Hydra.get_mode(None, "search", given) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given", [["hydra.mode=MULTIRUN"], ["hydra={mode: RUN}"], ["--config-dir", "mine"], ["-cn", "mine"]]
)
def test_a_mode_that_may_be_set_is_read(given: list[str]) -> None:
    compose_once([])
    compose_once(given)
    assert Hydra.get_mode is composing._GET_MODE
