from placements.forms.texts import *  # noqa: F403
