"""The old place of a part of `placements.forms`."""

from placements.forms.meaning import *  # noqa: F403
from placements.forms.meaning import without_meaning, without_none  # noqa: F401
