"""Training loops on one device: the loop of generated scripts, and one of the user's own.

They do not know how a call of a script is carried out, nor how the processes of a run are started.

Read `iterations` and `loop_state` (the state that is kept), of either loop. The loop of scripts: `train`. A
loop of the user's own: `batches` (the part that it reads), `joining` (the process, its modules and their
batches), `evaluation` (forward blocks alone), `pipeline`.
"""
