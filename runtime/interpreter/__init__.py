"""Programs carried out: one walk over a program, which calls a backend.

It does not know what a backend does with an instruction: backends stand in the rooms that need them. Read
`interpreter`.
"""
