"""The instance library's command: ``python -m experiments.benchmarks instances VERB``.

The data set is the folder ``instances`` beside this one. `answers` reads its problems and stores better
answers; `verbs` has the verbs ``search`` and ``keep``.
"""
