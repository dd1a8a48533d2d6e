"""A folder of measured layers and links: its models, and their costs by type of GPU.

The module does not know plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from placements.measured.layer_profile import LayerProfile, LayerProfileError, read_layer_profiles
from placements.measured.link_fit import Links, read_links


@dataclass(frozen=True)
class ProfiledModel:
    """A measured model: the costs of its layers by type of GPU, and the links between GPUs."""

    name: str
    profiles: Mapping[str, LayerProfile]
    links: Links


def read_profiled_model(folder: str | Path, model: str) -> ProfiledModel:
    """Read a model's measured layers and links from a folder.

    Args:
        folder: With ``profiles/``, ``memory/`` and ``bandwidth/``; see `read_layer_profiles` and
            `read_links`.
        model: Its name.

    Raises:
        LayerProfileError: The folder does not have the model, or a file is wrong.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise LayerProfileError(f"{folder}: is not a folder; give one with profiles/, memory/ and bandwidth/")
    known = sorted(path.name for path in (folder / "profiles").glob("*") if path.is_dir())
    if model not in known:
        raise LayerProfileError(f"{folder}: has no profile of {model!r}; it has {', '.join(known) or 'none'}")
    profiles = read_layer_profiles(folder, model)
    if not any(profile.layers for profile in profiles.values()):
        raise LayerProfileError(f"{folder / 'profiles' / model}: has no times of any GPU; add GPU.json")
    return ProfiledModel(model, profiles, read_links(folder / "bandwidth"))
