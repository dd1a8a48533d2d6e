"""One virtual machine: all devices of an iteration in virtual time, without processes and GPUs.

It does not know what blocks compute. Read

    streams      the machine: streams, events and work queues of all GPUs, and its loop over time
    rules        what transfers wait for: a network's rules, or those of NCCL, each with its source
    iteration    programs carried out on the machine, block by block and message by message

and the two views of it:

    play         programs with given times: how long transfers make an iteration
    virtual_gpu  a GPU whose clock, time and energy are virtual
    virtual_run  generated scripts on such GPUs: the time and energy of a plan
"""
