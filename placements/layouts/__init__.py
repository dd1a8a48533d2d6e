"""Layouts of pipelines: which layers stand on which virtual stage, in the notations of training frameworks.

- `layout`: such a layout, and the even one
- `shell_words`: the commands of a bash script, as the shell would make them
- `argument_words`: the words of a command line in a file, or of a record's fields, and back
- `megatron_notation`: Megatron-LM's notation, and its rules
- `megatron_arguments`: the arguments of a Megatron-LM command line that say a layout
- `torchtitan_parts`: torchtitan's lists of modules
- `deepspeed_parts`: DeepSpeed's bounds of stages
- `framework_files`: the layout that a file of any of them says
- `layer_file`: times and memory of the layers of a model, as CSV
- `megatron_log`: times of pipeline ranks in a log of Megatron-LM's timers
- `measured_layers`: layers from such a log, a profile of ours, a trace, or their CSV
"""
