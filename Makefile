# rmq: `make` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard rmq/_fastpath/*/*.pyx rmq/_fastpath/*/*.pxd rmq/_fastpath/*/*.h)
# the formatter of the console's JavaScript; empty without npm
PRETTIER := $(if $(shell command -v npm),$(VENV)/prettier-3.6.2/node_modules/.bin/prettier)
JAVASCRIPT := 'rmq/console/web/*.js'
# pages with a broken link, and a reference with a wrong name, are errors
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict -f packaging/site/mkdocs.yml
WORKERS ?= 2
# stores of the default tests go to memory where 2 GB of it are free; crash tests do not
IN_MEMORY := $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 2000000 {print "TMPDIR=/dev/shm"}')
SET ?= all
INTEROP_smoke := tests/interop/test_smoke.py
INTEROP_five := tests/interop/test_five.py
INTEROP_failover := -v -rP -n $(WORKERS) --dist worksteal tests/interop/test_controller_brokers.py
INTEROP_tasks := tests/interop/test_task_suites.py
INTEROP_apache := tests/interop/test_apache.py tests/interop/test_static_topics.py
INTEROP_all := tests/interop tests/spark

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*  \#\#* .*/\1/p' $(firstword $(MAKEFILE_LIST)))

# a text after two # is in the short list, one after a single # in the long one
help:  ## list the targets; ALL=1 lists more: measurements, proofs and parts of a release
	@sed -n 's/^\([a-z-]*\):.*  ##$(if $(ALL),*) \(.*\)/  make \1#\2/p' $(MAKEFILE_LIST) | column -t -s '#'

run: $(VENV)/.ready  ## compile and start a broker with its name server on loopback; ARGS="-c my.conf"
	@echo '  $$ $(BIN)/rmq broker $(ARGS)     . $(VENV)/bin/activate makes it rmq'; echo
	@exec $(BIN)/rmq broker $(ARGS)

dev: $(VENV)/.dev  ## make .venv with all tools and libraries, so that no test is skipped

test: $(VENV)/.test  ## the default tests, and every benchmark once, untimed
	$(IN_MEMORY) $(BIN)/pytest -q -rs -n $(WORKERS)
	$(BIN)/pytest -q bench --benchmark-disable

test-slow: $(VENV)/.dev  # the slow tests
	$(BIN)/pytest -q -m slow

check: $(VENV)/.check $(PRETTIER)  ## format, lint, types, stubs, layers, spelling, pages, house rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint rmq
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest rmq._fastpath
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(MKDOCS)
	$(if $(PRETTIER),$(PRETTIER) --check $(JAVASCRIPT),@echo "npm is missing: the format of the console's JavaScript is not checked")
	$(BIN)/pytest -q tests/meta

docs: $(VENV)/.check  # the documentation site, with the Python reference, in build/site
	$(MKDOCS)

fix: $(VENV)/.check $(PRETTIER)  ## format, and fix what can be fixed automatically
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(if $(PRETTIER),$(PRETTIER) --write $(JAVASCRIPT))

$(VENV)/prettier-%/node_modules/.bin/prettier:
	npm install --silent --no-audit --no-fund --no-save --prefix $(VENV)/prettier-$* prettier@$*

crash: $(VENV)/.dev  ## kill -9, power cuts, failing disks; RMQ_CRASH_ROUNDS=100 for more
	$(BIN)/pytest -q -s -m crash

asan: $(VENV)/.dev  ## tests of compiled code under AddressSanitizer; TESTS="tests/fastpath -x"
	$(BIN)/python tests/asan.py $(TESTS)

interop: $(VENV)/.dev  ## real clients and Java's servers; SET=smoke, five, failover, tasks, apache or all
	$(BIN)/pytest -q -s -m interop $(INTEROP_$(SET))

spark: $(VENV)/.spark  ## jobs in a real Spark (needs Java 17)
	$(BIN)/pytest -q -m spark tests/spark

bench: $(VENV)/.dev  ## throughput, CPU per message, latency; the store; micro benchmarks
	$(BIN)/python bench/load/run.py
	$(BIN)/python bench/store.py
	$(BIN)/python bench/load/delivery.py
	$(BIN)/python bench/figures.py
	$(BIN)/pytest -q bench --benchmark-only --benchmark-columns=median,ops,rounds

bench-requests: $(VENV)/.dev  # CPU of each request of ordinary clients in plain sends; ARGS="--java"
	$(BIN)/python lab/requests.py $(ARGS)

bench-check: $(VENV)/.dev  # fail if a ratio to the echo got 10 % worse, to a send 15 %, twice; BASE=result.json
	$(BIN)/python bench/compare.py $(BASE)

bench-tls: $(VENV)/.dev  # the price of TLS: sends, pulls, idle connections, handshakes, a storm
	$(BIN)/python bench/load/tls.py $(ARGS)

lab: $(VENV)/$(if $(filter spark%,$(NAME)),.spark,$(if $(filter console%,$(NAME)),.browser,.dev))  ## long measurements and experiments; NAME=growth ARGS="…", without NAME a list
	@$(IN_MEMORY) PYTHONPATH=.:spark $(BIN)/python -m lab $(NAME) $(ARGS)

proof: $(VENV)/.dev  # try each promise of docs/reference/proof.md, and write its table; hours
	$(BIN)/python lab/proof.py $(ARGS)

proof-short: $(VENV)/.dev  # the same with fewer rounds; minutes
	$(BIN)/python lab/proof.py --short $(ARGS)

wheels: $(VENV)/.dev  # a source archive, and a manylinux wheel for each CPython found here
	$(BIN)/python packaging/wheels.py dist

release: $(VENV)/.dev  ## tag, source archive, wheels, image context, components, sums, each tried; VERSION=1.0.0rc1
	$(BIN)/python packaging/release.py $(VERSION)
	$(BIN)/python packaging/artefacts.py dist

release-check: $(VENV)/.dev  # build the files of a release once more; fail if a byte differs
	$(BIN)/python packaging/artefacts.py --compare dist

# each brings what its group of libraries in pyproject.toml needs: none, test, check, dev
ENVIRONMENTS := $(addprefix $(VENV)/.,ready test check dev)
$(ENVIRONMENTS): $(VENV)/.%: pyproject.toml setup.py $(SOURCES)
	@$(PYTHON) --version >/dev/null 2>&1 || { echo "No $(PYTHON) found: install Python 3.11 or newer, or say which with make PYTHON=python3.12." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$$($(PYTHON) --version) is too old: rmq needs 3.11 or newer; say which to use with make PYTHON=python3.12." >&2; exit 1; }
	@test "$$(uname -s)" = Linux || { echo "rmq runs on Linux (it needs epoll); this is $$(uname -s)." >&2; exit 1; }
	@set -- $${CC:-cc}; command -v "$$1" >/dev/null || { echo "No C compiler found: install gcc or clang, or name one with CC=." >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || { echo "Python.h is missing: install the development package of $$($(PYTHON) --version)." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make a virtual environment: install its venv package." >&2; exit 1; }
	@$(PYTHON) packaging/first_run.py $(VENV) $(filter-out ready,$*)
	@touch $@ $(VENV)/.ready

$(VENV)/.browser: $(VENV)/.dev
	$(BIN)/pip install -q --disable-pip-version-check 'selenium>=4.51,<5'
	@touch $@

$(VENV)/.spark: $(VENV)/.dev
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e ".[spark,sql,follow,avro,delta,iceberg]" 'moto[server]>=5' matplotlib
	@# Spark looks for sources in the folders of sys.path, where an editable install is not
	$(BIN)/python -c 'import pathlib, sysconfig; pathlib.Path(sysconfig.get_path("purelib"), "rmq_spark.pth").write_text("$(CURDIR)/spark\n")'
	@touch $@
