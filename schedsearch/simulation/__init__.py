"""A schedule's orders under real conditions: times that vary, slow devices, shared links.

Each device keeps the order of each of its streams and starts each block as soon as it can; between iterations
there is a barrier. In the order in which to read:

- `conditions`: differences from the placement's times
- `messages`: a schedule's blocks in order, and the messages of each, with their links
- `drawn_times`: the times of all blocks in all iterations
- `timing`: their ends
- `iterations`: how long iterations take
"""
