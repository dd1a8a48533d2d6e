"""Plans in other systems' terms, each checked by what the system then runs: its memory, and what differs.

- `as_run`: a plan as another system runs it, with its time and memory
- `megatron`: arguments of Megatron-LM; `torchtitan`: arguments of torchtitan
- `galvatron`: Galvatron's plan file
"""
