"""What models cost: operations, bytes and activation sizes of their layers, and placements made of them.

- `transformer`: a GPT's sizes; `rates`: how fast a GPU does such work
- `parallel`: layers shared by the GPUs of a device; `gpt_costs`: blocks of a GPT in stages
- `gpt`: placements of them; `vision`: convolutional networks, layer by layer
"""
