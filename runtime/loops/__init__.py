"""Training loops on one device: the loop of generated scripts, and one of the user's own.

They do not know how a call of a script is carried out, nor how the processes of a run are started.

Read `iterations` (of either loop). The loop of scripts: `run_checkpoints` (which iterations have one),
`post_validated` (iterations without a barrier), `train`, `entry` (what scripts import). A loop of the user's
own: `batches` (the part that it reads), `joining` (the process and its modules),
`intake` (batches and shapes), `loop_state` (what is kept), `evaluation` (forward blocks alone), `pipeline`
(what the user sees).
"""
