# Everything starts from nothing: the targets build .venv themselves. See CONTRIBUTING.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1
# Tests start hundreds of interpreters: without its bytecode each of them compiles legroom again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-docs test-extras test-native test-pythons fuzz lint docs dist chromium bench clean

$(STAMP): pyproject.toml constraints.txt $(wildcard src/legroom/storing/*.[ch] src/legroom/hollow/*.c)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[all,dev]' -c constraints.txt
	touch $@

demo: $(STAMP)  ## what legroom does, on this machine
	@bash demo.sh $(BIN)/legroom

test: $(STAMP)  ## fast tests on 2 cores
	$(BIN)/python -m pytest tests -n 2 --dist worksteal -m "not slow and not extras"

test-slow: $(STAMP)  ## long trainings, kills and sweeps; all recorded GPU runs
	LEGROOM_SLOW=1 $(BIN)/python -m pytest tests -m slow
	LEGROOM_SLOW=1 $(BIN)/python -m pytest tests/goldens

test-extras:  ## tests of optional packages: torchrl, tianshou, MLflow, W&B, XLA's compiler for GPUs
	$(PYTHON) -m venv .venv-extras
	.venv-extras/bin/pip install --quiet --disable-pip-version-check -e '.[all,dev,test-extras]' -c constraints.txt
	.venv-extras/bin/python -m pytest tests -m "extras and not slow"

lint: $(STAMP)  ## style, types, the direction of imports and the size of rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/house_rules.py

test-native: $(STAMP)  ## the C core under AddressSanitizer and UBSan, and with every allocation failing in turn
	sh tests/native.sh $(BIN)/python

fuzz: $(STAMP)  ## generated inputs for readers, explain, storage files and the page; FUZZ_MINUTES each (5)
	$(BIN)/python -m tests.fuzz.fuzz

dist: $(STAMP)  ## sdist and wheel, in dist/
	rm -rf dist
	$(BIN)/python -c "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"

test-pythons: dist  ## the wheel without a compiler in every Python that is here
	sh tests/pythons.sh

$(VENV)/.installed-docs: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]' -c constraints.txt
	touch $@

docs: $(VENV)/.installed-docs  ## the documentation, in build/docs/index.html; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

test-docs: $(VENV)/.installed-docs  ## every command of README and docs, also those that train; the built pages (half an hour)
	LEGROOM_SLOW_DOCS=1 $(BIN)/python -m pytest tests/docs

# Debian's browser, installed where it is missing and that is allowed. Without it its tests are skipped, but not in CI.
chromium:
	@test -x /usr/bin/chromium || { test "$$(id -u)" = 0 && apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; } \
	  || echo "chromium is not there and could not be installed: apt-get install chromium, as root"

bench:  ## which benches there are: `make bench-NAME` runs one, and bench/RESULTS.md has what they measured
	@grep -l "write_section(" bench/*.py | while read file; do \
	  sed -n "1s#^\"\"\"#make bench-$$(basename $$file .py | tr _ -)  #p" $$file; done

# Extras that a bench needs beside those of .venv, in an environment of its own.
bench-storage bench-xla: bench-%:
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install --quiet --disable-pip-version-check -e '.[sb3,$(if $(filter xla,$*),xla-gpu,bench-storage)]' -c constraints.txt
	.venv-$*/bin/python -m bench.$* $(ARGS)

bench-accuracy-heldout: bench-%: $(STAMP)
	$(BIN)/pip install -q -e '.[bench,ninja,fire,gameboy]' -c constraints.txt
	$(BIN)/python -m bench.$(subst -,_,$*) $(ARGS)

bench-%: $(STAMP)  ## one bench: `make bench-vram`, `make bench-leaks ARGS=found`
	$(BIN)/python -m bench.$(subst -,_,$*) $(ARGS)

clean:
	rm -rf $(VENV) .venv-storage .venv-xla .venv-extras build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
