"""The pipeline that a file of any framework says."""

from __future__ import annotations

from placements.layouts.argument_words import argument_words
from placements.layouts.megatron_arguments import ARGUMENTS, MegatronPipeline, read_arguments
from placements.layouts.torchtitan_parts import SECTION, read_job


def read_any(path: str) -> MegatronPipeline:
    """Return the pipeline that a file of Megatron-LM's arguments or torchtitan's flags says.

    Raises:
        LayoutError: It is wrong; the message begins with the path.
    """
    words = argument_words(path, "Megatron-LM's or torchtitan's arguments", (SECTION, *ARGUMENTS))
    if any(word.startswith(SECTION) for word in words):
        return MegatronPipeline(read_job(path))
    return read_arguments(path)
