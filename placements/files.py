"""The old place of a part of `placements.forms`."""

from placements.forms.texts import *  # noqa: F403
