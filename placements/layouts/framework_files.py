"""The pipeline that a file of any framework says."""

from __future__ import annotations

from pathlib import Path

from placements.layouts.argument_words import argument_words, given
from placements.layouts.layout import LayoutError
from placements.layouts.megatron_arguments import ARGUMENTS, MegatronPipeline, pipeline_of
from placements.layouts.torchtitan_parts import SECTION, layout_of_flags
from placements.plain_data import in_file


def read_any(path: str | Path) -> MegatronPipeline:
    """Return the pipeline that a file of Megatron-LM's arguments or torchtitan's flags says, or a script's.

    Raises:
        LayoutError: It cannot be read, or the framework would refuse it; the message begins with the path.
    """
    with in_file(path, LayoutError):
        words = argument_words(path, "Megatron-LM's or torchtitan's arguments", (SECTION, *ARGUMENTS))
        if any(word.startswith(SECTION) for word in words):
            return MegatronPipeline(layout_of_flags(given(words)))
        return pipeline_of(words)
