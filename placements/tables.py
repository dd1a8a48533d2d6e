from placements.forms.tables import *  # noqa: F403
from placements.forms.meaning import keys_of  # noqa: F401
