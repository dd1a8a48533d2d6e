from placements.forms.texts import read_yaml, to_yaml  # noqa: F401
