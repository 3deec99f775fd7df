# Everything happens in one virtual environment, made on first use. Needs Python 3.11+ and make; Node.js, for building
# the dashboard, is fetched where there is none.
#   make demo    the whole lifecycle on this machine, offline, ending with a trained policy
#   make test    the tests          make check   lint and types          make bench   the benchmarks

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# A CPU build of torch: local package files first, then this index. Set TORCH_INDEX= to use pip's default index
# (which may mean a CUDA build of several gigabytes).
TORCH_VERSION ?= 2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# Processes that share the test files out; each starts servers of its own where its tests need one.
TEST_PROCESSES ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Hundreds of processes of the tests load the same modules: they are compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-quick dashboard test check bench test-faults test-scale test-clients test-trainers test-browser screenshots clients openapi experiments install clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml scripts/install.sh
	PYTHON="$(PYTHON)" VENV="$(VENV)" TORCH_VERSION="$(TORCH_VERSION)" TORCH_INDEX="$(TORCH_INDEX)" bash scripts/install.sh
	touch $@

PAGE := src/agentworld/api/static/index.html
PAGE_SOURCES := $(shell find dashboard -name node_modules -prune -o -type f ! -name schema.d.ts -print)

# The dashboard's page, which `agentworld serve` shows. Built anew where what it is made from has changed.
dashboard: $(PAGE)

$(PAGE): $(VENV)/.installed docs/openapi.json scripts/dashboard.sh $(PAGE_SOURCES)
	VENV="$(CURDIR)/$(VENV)" bash scripts/dashboard.sh build

demo: install dashboard
	$(BIN)/agentworld demo $(ARGS)

demo-quick: install dashboard
	$(BIN)/agentworld demo --quick $(ARGS)

test: install dashboard
	VENV="$(CURDIR)/$(VENV)" bash scripts/dashboard.sh test
	$(BIN)/python -m tests.clients.installed npm
	TEST_FILES=memory $(BIN)/python -m pytest -m "not faults and not scale and not clients and not trainers" -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS)

test-faults: install
	$(BIN)/python -m pytest -m faults $(ARGS)

# Ray is fetched for this alone, as it is large. Generated tests try all their examples here, in `make test` a part.
test-scale: install
	$(BIN)/python -c 'import ray.data' 2> /dev/null || $(BIN)/python -m pip install --quiet --constraint $(VENV)/constraints.txt -e '.[ray]'
	$(BIN)/python -m pytest -m scale -rP $(ARGS)
	TEST_EXAMPLES=all $(BIN)/python -m pytest -m "hypothesis and not scale and not faults and not clients and not trainers" $(ARGS)

# The clients of the tests, to be used by hand; says where they are.
clients: install
	@$(BIN)/python -m tests.clients.installed npm python where

# Clients are fetched into a cache folder, at the versions that tests/clients locks. They see no network but loopback
# where the system gives a namespace of its own, and are watched by guards everywhere.
test-clients: install
	$(BIN)/python -m tests.clients.installed npm python
	$(BIN)/python -m tests.clients.loopback_only $(BIN)/python -m pytest -m clients tests/clients $(ARGS)

# Trainers are fetched into a cache folder, each into an environment of its own, at the releases that tests/trainers_real
# locks, with a CPU build of torch.
test-trainers: install
	TORCH_VERSION="$(TORCH_VERSION)" TORCH_INDEX="$(TORCH_INDEX)" $(BIN)/python -m tests.trainers_real.installed
	$(BIN)/python -m pytest -m trainers tests/trainers_real $(ARGS)

# The page in headless Chromium. `make test` runs some of these where playwright and Chromium are there.
test-browser: install dashboard
	VENV="$(CURDIR)/$(VENV)" bash scripts/browser.sh
	TEST_BROWSER=all $(BIN)/python -m pytest -m browser tests/browser $(ARGS)

# A picture of each view, in the folder screenshots, on a pool that agents fill at once.
screenshots: install dashboard
	VENV="$(CURDIR)/$(VENV)" bash scripts/browser.sh
	$(BIN)/python -m tests.browser.screenshots screenshots $(ARGS)

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	$(BIN)/python -m benchmarks $(ARGS)

# Cells that have no result yet, then the page on all results; hours. ARGS may name cells, axes and --minutes.
experiments: install
	OMP_NUM_THREADS=1 $(BIN)/python -m experiments run $(ARGS)
	$(BIN)/python -m experiments page

openapi: install
	$(BIN)/python -m agentworld.api.openapi > docs/openapi.json

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
