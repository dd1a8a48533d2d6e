"""Plans and layouts in the terms of training systems: one record of what a trainer is told, written and read.

- `layout`: which layers stand on which virtual stage, and the even division
- `shell`: the commands of a bash script, as the shell would make them
- `words`: the words of a command line in a file, or of a record's fields, and back
- `megatron_layout`: Megatron-LM's notation, its rules, and the arguments that say a layout
- `megatron_log`: times of pipeline ranks in a log of Megatron-LM's timers
- `layers`: times and memory of the layers of a model, as CSV, or from what was measured
- `job`: what a trainer is told, of a model and a plan
- `as_run`: a plan as another system runs it, with its time and memory
- `megatron`: arguments of Megatron-LM; `torchtitan`: of torchtitan
- `galvatron`: Galvatron's plan file, read and written
- `deepspeed`: DeepSpeed's bounds of stages
- `files`: the files of all systems, and what they cannot say; the layout that a file says
"""
