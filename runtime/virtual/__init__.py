"""GPUs in virtual time, without processes: the time and energy of a plan's scripts.

It does not know what blocks compute. Read

    virtual_gpu  a GPU whose clock, time and energy are virtual
    virtual_run  generated scripts on such GPUs: the time and energy of a plan
"""
