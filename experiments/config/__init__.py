"""From the command line to typed options; knows nothing of their use.

- `rooms`: all commands by name; `declaring`: commands and options as records, and their configs for Hydra
- `command`: runs a command; its errors are one line; `run_record`: how a run ended
- `ray_launcher`: sweeps on Ray
- `words`: the words of a command line before Hydra reads them, and Hydra's messages in one line
- `options`: the checked options of a config; `option_list`: what help and docs say of them
- `machine`: what a measurement depends on
"""
