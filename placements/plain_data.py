"""The old place of a part of `placements.forms`."""

from placements.forms.reading import *  # noqa: F403
