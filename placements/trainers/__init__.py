"""Plans and layouts in the terms of training systems: one record of what a trainer is told, written and read.

- `job`: the record, of a model and a plan
- `as_run`: a plan as another system runs it, with its time and memory
- `megatron`: arguments of Megatron-LM; `torchtitan`: of torchtitan
- `galvatron`: Galvatron's plan file, read and written
- `files`: the files of all systems, and what they cannot say
"""
