"""The pipeline that a file of any framework says."""

from __future__ import annotations

from placements.layouts.argument_words import argument_words
from placements.layouts.layout import LayoutError
from placements.layouts.megatron_arguments import MegatronPipeline, read_arguments
from placements.layouts.torchtitan_parts import read_job


def read_any(path: str) -> MegatronPipeline:
    """Return the pipeline that a file of Megatron-LM's arguments or torchtitan's flags says.

    Raises:
        LayoutError: It is wrong; the message begins with the path.
    """
    argument_words(path, "Megatron-LM's or torchtitan's arguments")
    try:
        return MegatronPipeline(read_job(path))
    except LayoutError as error:
        if "has no --parallelism." not in str(error):
            raise
    return read_arguments(path)
