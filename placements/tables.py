"""The old place of a part of `placements.forms`."""

from placements.forms.tables import *  # noqa: F403
