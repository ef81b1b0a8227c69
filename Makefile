# Everything starts from nothing: the targets build .venv themselves. See CONTRIBUTING.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1
# Tests start hundreds of interpreters: without its bytecode each of them compiles legroom again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-native test-ui docs test-docs lint bench bench-lean bench-storage bench-storage-cases bench-accuracy bench-vram \
  bench-programs bench-speed bench-workers bench-microbatch bench-throughput bench-kills bench-mine bench-mine-full bench-mine-learns \
  bench-fit bench-hard-limits bench-watch bench-faults bench-explain bench-knobs bench-leaks \
  bench-ninja bench-ninja-learns bench-parallel bench-gameboy bench-gameboy-learns bench-fire bench-fire-learns \
  bench-robot bench-robot-learns robot-calibrations bench-ui bench-rllib bench-sweep bench-attach clean

$(STAMP): pyproject.toml constraints.txt $(wildcard src/legroom/storing/*.[ch] src/legroom/hollow/*.c)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[all,dev]' -c constraints.txt
	touch $@

demo: $(STAMP)  ## what legroom does, on this machine
	@bash demo.sh $(BIN)/legroom

test: $(STAMP)  ## fast tests on 2 cores
	$(BIN)/python -m pytest tests -n 2 --dist worksteal -m "not slow"

test-slow: $(STAMP)  ## long trainings, kills and sweeps; all recorded GPU runs
	LEGROOM_SLOW=1 $(BIN)/python -m pytest tests -m slow
	LEGROOM_SLOW=1 $(BIN)/python -m pytest tests/goldens

.PHONY: soak
soak: $(STAMP)  ## hours of train, watch, sweep and the page under random faults; SOAK_MINUTES=90
	$(BIN)/python -m bench.soak $(SOAK_MINUTES)

lint: $(STAMP)  ## style, types, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/house_rules.py

.PHONY: fuzz
fuzz: $(STAMP)  ## generated inputs for readers, explain, storage files and the page; FUZZ_MINUTES each (5)
	$(BIN)/python -m tests.fuzz.fuzz

.PHONY: dist test-pythons
dist: $(STAMP)  ## sdist and wheel, in dist/
	rm -rf dist
	$(BIN)/python -c "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"

test-pythons: dist  ## the wheel without a compiler in every Python: commands and torch-free tests; missing ones are skipped
	sh ci/test_pythons.sh

test-native: $(STAMP)  ## the C core under AddressSanitizer and UBSan, and with every allocation failing in turn
	sh tests/native.sh $(BIN)/python

DOCS_STAMP := $(VENV)/.installed-docs
$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]' -c constraints.txt
	touch $@

docs: $(DOCS_STAMP)  ## the documentation, in build/docs/index.html; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

test-docs: $(DOCS_STAMP)  ## every command of README and docs, also those that train; the built pages (half an hour)
	LEGROOM_SLOW_DOCS=1 $(BIN)/python -m pytest tests/docs

test-ui: $(STAMP) chromium  ## the planner page in a real browser
	$(BIN)/python -m pytest tests/serving

# Debian's browser, installed where it is missing and that is allowed. Without it its tests are skipped, but not in CI.
.PHONY: chromium
chromium:
	@test -x /usr/bin/chromium || { test "$$(id -u)" = 0 && apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; } \
	  || echo "chromium is not there and could not be installed: apt-get install chromium, as root"

bench: bench-vram bench-speed bench-accuracy bench-lean bench-storage bench-storage-cases bench-workers bench-microbatch \
  bench-throughput bench-kills bench-mine bench-mine-full bench-mine-learns bench-fit bench-hard-limits bench-explain \
  bench-knobs bench-watch bench-faults bench-leaks bench-ninja bench-ninja-learns bench-parallel \
  bench-gameboy bench-gameboy-learns bench-fire bench-fire-learns bench-robot bench-robot-learns bench-ui bench-rllib \
  bench-sweep bench-attach  ## everything that takes longer; writes bench/RESULTS.md

.PHONY: bench-house
bench-house: $(STAMP)  ## size, seams, types and complexity of the package; radon in an environment of its own
	$(PYTHON) -m venv .venv-house
	.venv-house/bin/pip install --quiet --disable-pip-version-check radon
	$(BIN)/python -m bench.house .venv-house/bin/radon

bench-programs: $(STAMP)  ## public programs, rehearsed; PROGRAMS=folder with their sources and an environment
	$(BIN)/python -m bench.programs $(PROGRAMS)

.PHONY: bench-program-hosts
bench-program-hosts: $(STAMP)  ## host memory of programs with replay buffers, forecast against filled; half an hour
	$(BIN)/python -m bench.program_hosts dev
	$(BIN)/python -m bench.program_hosts held-out

.PHONY: bench-params
bench-params: $(STAMP)  ## values found by fit --param, tried on a card of that size; PHANTOM=interpreter with such a card (2 hours)
	$(BIN)/python -m bench.fit_params $(PHANTOM) build/fit_params dev
	$(BIN)/python -m bench.fit_params $(PHANTOM) build/fit_params held-out

bench-vram: $(STAMP)  ## predicted against real CUDA-allocator peaks
	$(BIN)/python -m bench.vram

.PHONY: bench-vram-held-out
bench-vram-held-out: $(STAMP)  ## the same for the half of our own recorded runs that was set aside
	$(BIN)/python -m bench.vram --held-out

bench-speed: $(STAMP)  ## how long a prediction takes, against its imports
	$(BIN)/python -m bench.speed

HELD_OUT ?= 660577
bench-accuracy: $(STAMP)  ## predicted against measured host memory: the old 22 runs, the tuning set, the last held-out set
	$(BIN)/pip install -q -e '.[bench,ninja,fire,gameboy]' -c constraints.txt
	$(BIN)/python -m bench.accuracy
	$(BIN)/python -m bench.accuracy_own
	$(BIN)/python -m bench.first_prediction
	$(BIN)/python -m bench.accuracy_heldout --seed 11
	$(BIN)/python -m bench.accuracy_heldout --seed $(HELD_OUT)

bench-lean: $(STAMP)  ## lean storage predicted by a probe of the env, against real buffers
	$(BIN)/python -m bench.lean_prediction

bench-storage:  ## memory and speed of lean storage beside SB3, sb3-extra-buffers, cpprb, Tianshou and torchrl
	$(PYTHON) -m venv .venv-storage
	.venv-storage/bin/pip install --quiet --disable-pip-version-check -e '.[sb3,bench-storage]' -c constraints.txt
	.venv-storage/bin/python -m bench.storage

.PHONY: bench-storage-speed
bench-storage-speed: $(STAMP)  ## lean storage beside SB3's by kind of data, ten million transitions, train beside a script
	$(BIN)/python -m bench.storage_speed
	$(BIN)/python -m bench.storage_millions
	$(BIN)/python -m bench.train_start

bench-storage-cases: $(STAMP)  ## more than 100,000 generated sequences through lean storage
	$(BIN)/python -m bench.storage_cases

bench-workers: $(STAMP)  ## worker processes beside SubprocVecEnv, AsyncVectorEnv and, where it is, PufferLib
	$(BIN)/python -m bench.workers

bench-attach: $(STAMP)  ## programs as they are and with savings attached: result, memory, time
	$(BIN)/python -m bench.attach

bench-microbatch: $(STAMP)  ## micro-batches: how exact, how much memory, predicted against measured
	$(BIN)/python -m bench.microbatch

bench-throughput: $(STAMP)  ## whole trainings with lean storage, against SB3's own arrays
	$(BIN)/python -m bench.throughput

bench-kills: $(STAMP)  ## kill -9 at 100 random moments of a training, resumed each time
	$(BIN)/python -m bench.kills

bench-mine: $(STAMP)  ## the mine: speed of the environment, reading, pit and greedy schedules
	$(BIN)/python -m bench.mine_env
	$(BIN)/python -m bench.mine_pit

bench-mine-full: $(STAMP)  ## the run that died at 105 GiB: whole rollout, real grid, measured peak (half an hour)
	OMP_NUM_THREADS=2 $(BIN)/python -m bench.mine_full

bench-mine-learns: $(STAMP)  ## mine:ultra_light trained with three seeds (an hour)
	$(BIN)/python -m bench.mine_learns

bench-fit: $(STAMP)  ## twelve random runs fitted and trained under a limit equal to the budget; speed of fitting
	$(BIN)/python -m bench.fit_speed
	$(BIN)/python -m bench.spill
	$(BIN)/python -m bench.fit_limits

bench-hard-limits: $(STAMP)  ## train --fit in 60, 40 and 30 % of the memory a run needs, where plain SB3 dies
	$(BIN)/python -m bench.hard_limits

.PHONY: bench-scheduler
bench: bench-scheduler
bench-scheduler: $(STAMP)  ## 60 jobs under exactly the limit that --for printed (an hour)
	$(BIN)/python -m bench.scheduler_limits

.PHONY: bench-xla
bench-xla:  ## XLA's plans for cards beside predictions from other sizes, in an environment with the extra xla-gpu
	$(PYTHON) -m venv .venv-xla
	.venv-xla/bin/pip install --quiet --disable-pip-version-check -e '.[xla-gpu]' -c constraints.txt
	.venv-xla/bin/python -m bench.xla

.PHONY: bench-tuner
bench: bench-tuner
bench-tuner: $(STAMP)  ## 200 trials of Optuna under 4 GiB: what is pruned, and what the others take
	$(BIN)/python -m bench.tuner_trials

bench-watch: $(STAMP)  ## what watching costs, and when it says a leak will end
	$(BIN)/python -m bench.watch

.PHONY: bench-ray-nodes bench-ray-data
bench: bench-ray-nodes bench-ray-data

bench-ray-nodes: $(STAMP)  ## predicted against measured memory of RLlib runs
	$(BIN)/python -m bench.ray_nodes

bench-ray-data: $(STAMP)  ## what RLlib's samples, batches and replay take beside their bytes
	$(BIN)/python -m bench.ray_data

bench-sweep: $(STAMP)  ## trials of a sweep packed by predicted memory, against Ray's placement by CPU
	$(BIN)/python -m bench.sweep_packing

bench-leaks: $(STAMP)  ## leaks found and false alarms in fresh processes, and what profiling costs
	$(BIN)/python -m bench.leaks

bench-ninja: $(STAMP)  ## steps per second of the ninja
	$(BIN)/python -m bench.ninja_env

bench-ninja-learns: $(STAMP)  ## three seeds of ninja:learn, judged on levels they never played
	$(BIN)/python -m bench.ninja_learns

bench-parallel: $(STAMP)  ## a hundred ninja environments in one machine, and what each optimisation saves
	$(BIN)/python -m bench.parallel_workers
	$(BIN)/python -m bench.parallel

bench-gameboy: $(STAMP)  ## frames per second of the Game Boy, and 8192 × 2 steps of a real fight in lean storage
	$(BIN)/python -m bench.gameboy_env
	$(BIN)/python -m bench.gameboy_rollout

bench-gameboy-learns: $(STAMP)  ## three seeds of gameboy:learn, judged in rounds they never fought
	$(BIN)/python -m bench.gameboy_learns

bench-fire: $(STAMP)  ## speed of fires, 100,000 transitions in lean replay, and the three runs beside each other
	$(BIN)/python -m bench.fire_env
	$(BIN)/python -m bench.fire_replay
	$(BIN)/python -m bench.fire_table

bench-fire-learns: $(STAMP)  ## three seeds of fire:learn, judged on landscapes they never saw
	$(BIN)/python -m bench.fire_learns

bench-robot: $(STAMP)  ## brax runs predicted and compiled, the tier table, and how fast robots are stepped
	$(BIN)/python -m bench.brax_memory
	$(BIN)/python -m bench.brax_knobs
	$(BIN)/python -m bench.robot_env

bench-robot-learns: $(STAMP)  ## three seeds of robot:quick, and one that is interrupted and resumed
	$(BIN)/python -m bench.robot_learns
	$(BIN)/python -m bench.robot_resumes

robot-calibrations: $(STAMP)  ## what XLA says about the robot, made anew; after any change of its files
	$(BIN)/python -m bench.robot_calibrations

bench-rllib: $(STAMP)  ## the same runs on RLlib and SB3, and what a training on Ray survives
	$(BIN)/python -m bench.rllib_learns
	$(BIN)/python -m bench.rllib_survives

.PHONY: bench-io-faults
bench: bench-io-faults
bench-io-faults: $(STAMP)  ## every file operation fails once and for good; power loss at every moment (40 minutes)
	$(BIN)/python -m bench.io_faults
	$(BIN)/python -m bench.power_loss

bench-faults: $(STAMP)  ## 300 kills of child, worker and supervisor; full disks, truncated checkpoints
	$(BIN)/python -m bench.faults
	$(BIN)/python -m bench.random_kills

bench-explain: $(STAMP)  ## kinds and numbers read from texts of failures
	$(BIN)/python -m bench.explain

bench-ui: $(STAMP) chromium  ## the planner page: how soon, how quick, how small, and a thousand bad requests
	$(BIN)/python -m bench.ui

bench-knobs: $(STAMP)  ## what bf16, checkpointing and expandable segments really save
	$(BIN)/python -m bench.knobs

clean:
	rm -rf $(VENV) .venv-storage build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
