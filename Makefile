# make run: eight unequal stages on a fresh machine, with a tenth more time than at the highest clocks to save energy in.
# make test: lint, types, the ceiling of lines, and all tests that are fast, without a GPU; for the time between two changes.
# make test-all: every test, with new random cases; writes tests/cpu_times.csv, which says what is fast.
# WORKERS=1 for fewer processes than the machine has cores. make test-gpu: what needs a GPU; put a CUDA build of torch into .venv first.
# make size: lines of each package and room. make ceiling: what is less than the ceiling becomes the ceiling.
# The set-up compiles annealing, which takes some ten seconds, so that no search has to.
# make docs: the site, in build/docs. make notebooks: opens notebooks/ in Jupyter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

WORKERS ?= logical
RECORD ?= --write-cpu-times
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist worksteal

.PHONY: run test test-all test-gpu size ceiling docs notebooks clean

run: $(INSTALLED)
	$(BIN)/python -m experiments.run placement=stages placement.path=examples/stages.yaml energy.slowdown=1.1 runtime.launcher=in_process

test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers auto
	$(BIN)/python tests/size.py --check
	$(PYTEST) --skip-slow

test-all: $(INSTALLED)
	$(MEASURED) $(PYTEST) $(RECORD) --hypothesis-profile='new cases'

size:
	$(PYTHON) tests/size.py

ceiling:
	$(PYTHON) tests/size.py --lower

test-gpu: $(INSTALLED)
	$(BIN)/pytest -m gpu tests/gpu

docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,docs]'
	$(BIN)/python -m sphinx -W --keep-going -b html docs build/docs

# The setting is kept in build, so that the user's own is as it was: Python files open as notebooks.
notebooks: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,notebooks]'
	$(BIN)/jupytext-config --settings-file build/jupyter/labconfig/default_setting_overrides.json set-default-viewer python
	JUPYTER_CONFIG_PATH=$(CURDIR)/build/jupyter $(BIN)/jupyter lab notebooks

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "schedsearch needs Python 3.11 or later; make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[all,test]'
	$(BIN)/python -c 'from experiments.benchmarks.timing import load_solvers; load_solvers()'
	touch $@

clean:
	rm -rf $(VENV) docs/api/*/ docs/gallery/made docs/made build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .lines_run
