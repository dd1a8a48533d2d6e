from placements.forms.reading import *  # noqa: F403
