# One command each: `make demo`, `make test`. Both set up .venv first.
PYTHON ?= $(firstword $(foreach p,python3.11 python3 python,$(shell command -v $(p) 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.8
STAMP := $(VENV)/.installed
DEMO_OUT ?= runs/demo
DEMO_FLAGS ?=
BENCH_OUT ?= runs/bench
BENCH_PEERS ?= flower,fedjax,pfl
PYTEST_FLAGS ?=
# A process a core, up to four; the tests of a file share one.
PYTEST_JOBS ?= -n auto --maxprocesses=4 --dist=loadfile

export UV_PROJECT_ENVIRONMENT := $(VENV)
# Without compiled files every start of TensorFlow takes three times as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo bench bundle docs test test-slow lint lock clean help

help:
	@echo "make setup  - create $(VENV) with every dependency (Python 3.11)"
	@echo "make demo   - train none, CDP, HDP and LDP on real digits; table and figure"
	@echo "make bench  - time rounds and loops against native TFF and peers; rewrite docs/benchmarks.md"
	@echo "make docs   - build the pages and the API reference into build/site"
	@echo "make bundle - pack Python, wheels with CUDA and project for machines without network"
	@echo "make test   - run the test suite"
	@echo "make test-slow - run the long studies among the tests"
	@echo "make lint   - ruff check and ruff format --check"
	@echo "make lock   - resolve dependencies again; rewrite uv.lock and requirements/"
	@echo "make clean  - remove $(VENV), caches and the demo's run folder"

setup: $(STAMP)

$(STAMP): setup.py pyproject.toml uv.lock Makefile
	@test -n "$(PYTHON)" || { echo "tff_hdp: no Python found; install Python 3.11 or set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; v = sys.version_info; v[:2] == (3, 11) or sys.exit("tff_hdp: needs Python 3.11, but $(PYTHON) is %d.%d; set PYTHON=/path/to/python3.11" % v[:2])'
	@echo "tff_hdp: creating $(VENV) and installing the locked dependencies (2.9 GB; minutes the first time)"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --upgrade
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) 2>/dev/null \
	  || $(BIN)/python -m pip install --disable-pip-version-check uv==$(UV_VERSION)
	@$(BIN)/uv sync --frozen --inexact --quiet --extra dev
	@touch $@
	@echo "tff_hdp: environment ready in $(VENV)"

demo: $(STAMP)
	@$(BIN)/python scripts/demo.py --out=$(DEMO_OUT) $(DEMO_FLAGS)

bench: $(STAMP)
	@mkdir -p $(BENCH_OUT)
	@$(BIN)/python benchmarks/run.py --work=A --runtimes=native,in_process,cluster --peers=$(BENCH_PEERS) --json=$(BENCH_OUT)/a.json
	@$(BIN)/python benchmarks/run.py --work=B,cnn_small,lenet --runtimes=native,in_process --peers=$(BENCH_PEERS) --json=$(BENCH_OUT)/b.json
	@$(BIN)/python benchmarks/run.py --work=C --runtimes=native,in_process,cluster --json=$(BENCH_OUT)/c.json
	@$(BIN)/python benchmarks/run.py --work=D,E,G --runtimes=native,in_process --json=$(BENCH_OUT)/deg.json
	@$(BIN)/python benchmarks/run.py --work=F --runtimes=native,in_process --peers=$(BENCH_PEERS) --json=$(BENCH_OUT)/f.json
	@$(BIN)/python benchmarks/run.py --work=gfl,hfl_dp,fl_top,udp_alg --json=$(BENCH_OUT)/neighbours.json
	@$(BIN)/python benchmarks/cluster.py --csv=docs/results/benchmarks/cluster.csv
	@$(BIN)/python benchmarks/profile_round.py --work=A,B,cnn_small,lenet,gfl,hfl_dp,fl_top,udp_alg --json=$(BENCH_OUT)/profile.json
	@ONEDNN_MAX_CPU_ISA=AVX2 $(BIN)/python benchmarks/profile_round.py --work=B,cnn_small,lenet --json=$(BENCH_OUT)/profile_held.json
	@$(BIN)/python benchmarks/report.py $(BENCH_OUT)/a.json $(BENCH_OUT)/b.json $(BENCH_OUT)/c.json $(BENCH_OUT)/deg.json $(BENCH_OUT)/f.json $(BENCH_OUT)/neighbours.json $(BENCH_OUT)/profile.json $(BENCH_OUT)/profile_held.json
	@$(BIN)/python -m scripts.papers.result_tables docs/benchmarks.md README.md

bundle: $(STAMP)
	@$(BIN)/python scripts/bundle.py

docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo build/site/index.html
	@echo "served, it has a search too: $(BIN)/python -m http.server --directory build/site"

test: $(STAMP)
	@$(BIN)/python -m pytest $(PYTEST_JOBS) $(PYTEST_FLAGS)

test-slow: $(STAMP)
	@$(BIN)/python -m pytest -m slow $(PYTEST_JOBS) $(PYTEST_FLAGS)

lint: $(STAMP)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

lock: $(STAMP)
	$(BIN)/uv lock
	$(BIN)/uv export --frozen --quiet --no-hashes --no-annotate --no-header --no-emit-project --extra dev -o requirements/lock.txt

clean:
	rm -rf $(VENV) $(DEMO_OUT) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
