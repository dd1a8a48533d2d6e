"""Options that a user gives of a run and of its model, each declared once, with default, unit and meaning.

`model` has those of the model and its training, `run` those of the run itself. Three things are made of each
declaration: an option of the commands `run` and `profile`, the argument of ``python -m runtime.launch``, and
the field that the code reads (`runtime.execution.run_options.RunOptions`, `runtime.models.ModelOptions`).
The room does not load torch, so that ``--help`` need not wait for it.
"""
