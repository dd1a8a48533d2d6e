"""The pipeline that a file of any framework says."""

from __future__ import annotations

from itertools import dropwhile
from pathlib import Path

from placements.forms.reading import in_file
from placements.layouts.argument_words import argument_words, given
from placements.layouts.layout import LayoutError
from placements.layouts.megatron_arguments import ARGUMENTS, MegatronPipeline, pipeline_of
from placements.layouts.torchtitan_parts import CONFIG_FLAGS, SECTION, layout_of_flags


def read_any(path: str | Path) -> MegatronPipeline:
    """Return the pipeline that a file of Megatron-LM's arguments or torchtitan's flags says, or a script's.

    Raises:
        LayoutError: It cannot be read, or the framework would refuse it; the message begins with the path.
    """
    what, names = "Megatron-LM's or torchtitan's arguments", (SECTION, *ARGUMENTS)
    with in_file(path, LayoutError):
        words = argument_words(path, what, names)
        flags = given(words)
        config = next((flags[name][0] for name in CONFIG_FLAGS if flags.get(name)), "")
        for folder in (Path(path).parent, Path()):
            if config and (folder / config).is_file():
                own = dropwhile(lambda word: not word.startswith("--"), words)
                words = [*argument_words(folder / config, what, names), *own]
                break
        if config or any(word.startswith(SECTION) for word in words):
            return MegatronPipeline(layout_of_flags(given(words)))
        return pipeline_of(words)
