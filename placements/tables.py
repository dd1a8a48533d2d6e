"""The old place of a part of `placements.forms`."""

from placements.forms.meaning import keys_of  # noqa: F401
from placements.forms.tables import *  # noqa: F403
