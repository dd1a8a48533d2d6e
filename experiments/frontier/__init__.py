"""A clock for each block of a schedule: ``schedsearch frontier``.

- `options`, checked where they are declared; `results`: what the steps return
- `schedule_selection`: of several schedules the one of least energy; modes, order and clocks together
- `task`: the frontier by its method, what it is compared with, all of it
- `constrained_plans`: plans that a real job can run
- `frontier_files`: files, tables, lines and the HTML page; `pictures`
"""
