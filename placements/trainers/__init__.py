"""Plans and layouts in the terms of training systems: a record of a trainer's job, written and read.

- `layout`: the layers of each virtual stage, and the even division
- `words`: the words of a command line in a file or a bash script, or of a record's fields, and back
- `megatron_layout`: Megatron-LM's notation, its rules, and the arguments that say a layout
- `layers`: times and memory of the layers of a model, as CSV
- `job`: a trainer's job: its model and its plan
- `as_run`: a plan as another system runs it, with its time and memory
- `megatron`: arguments of Megatron-LM; `megatron_forks`: of FlagScale and Primus; `torchtitan`: of torchtitan
- `stage_modes`: recomputation and offload by stage and micro-batch, and the part of it that a trainer can say
- `galvatron`: Galvatron's plan file, read and written
- `files`: the files of all systems, DeepSpeed's bounds among them, and the layout that a file says
"""
