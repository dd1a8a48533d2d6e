"""Layouts of pipelines: which layers stand on which virtual stage, in the notations of training frameworks.

- `layout`: such a layout, and the even one
- `megatron_notation`: Megatron-LM's notation, and its rules
- `megatron_arguments`: the arguments of a Megatron-LM command line that say a layout
- `torchtitan_parts`: torchtitan's lists of modules
- `deepspeed_parts`: DeepSpeed's bounds of stages
- `layer_file`: times and memory of the layers of a model, as CSV
"""
