# rmq: `make` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard rmq/_fastpath/*/*.pyx rmq/_fastpath/*/*.pxd rmq/_fastpath/*/*.h)
WORKERS ?= 2
# stores of the default tests go to memory where 2 GB of it are free; crash tests do not
IN_MEMORY := $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 2000000 {print "TMPDIR=/dev/shm"}')
FRAMES ?= 1000000
SECONDS ?= 600

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*  \#\# .*/\1/p' $(firstword $(MAKEFILE_LIST)))

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1#\2/p' $(MAKEFILE_LIST) | column -t -s '#'

run: $(VENV)/.ready  ## compile and start a broker with its own name server on loopback; ARGS="-c my.conf"
	@echo '  $$ $(BIN)/rmq broker $(ARGS)     . $(VENV)/bin/activate makes it rmq'; echo
	@exec $(BIN)/rmq broker $(ARGS)

dev: $(VENV)/.dev  ## make .venv with everything a contributor needs

test: $(VENV)/.dev  ## the default tests, and every benchmark once, untimed
	$(IN_MEMORY) $(BIN)/pytest -q -rs -n $(WORKERS)
	$(BIN)/pytest -q bench --benchmark-disable

test-slow: $(VENV)/.dev  ## the slow tests; prints how many there are
	$(BIN)/pytest -q -m slow

check: $(VENV)/.dev  ## format, lint, types, stubs, layers, spelling, house rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint rmq
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest rmq._fastpath
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/pytest -q tests/meta

fix: $(VENV)/.dev  ## format and mend what can be mended by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

crash: $(VENV)/.dev  ## kill -9, power cuts, failing disks; RMQ_CRASH_ROUNDS=100 for more, RMQ_CRASH_RINGS=0,1048576,default
	$(BIN)/pytest -q -s -m crash -o faulthandler_timeout=0

simulate: $(VENV)/.dev  ## groups with a controller in one process under kills, power cuts and cut networks, by seed; SEED=7, SEEDS=1000, MINUTES=10, WORKERS=2, ARGS="--brokers 3 --shrink"
	$(IN_MEMORY) $(BIN)/python -m tests.simulation --seed $(or $(SEED),0) --seeds $(or $(SEEDS),1) --minutes $(or $(MINUTES),10) --workers $(WORKERS) $(ARGS)

wheels: $(VENV)/.dev  ## dist/: a source archive, and a manylinux wheel for each CPython 3.11 to 3.14 found here
	$(BIN)/python packaging/wheels.py dist

release: $(VENV)/.dev  ## changelog, commit and tag, then the wheels; VERSION=0.2.0
	$(BIN)/python packaging/release.py $(VERSION)
	$(MAKE) wheels

recording: $(VENV)/.dev  ## plays the first minute and writes it into docs/quickstart.md
	$(BIN)/python packaging/recording.py

distribution: $(VENV)/.dev  ## a fresh clone and `make run`, wheels in clean environments
	$(BIN)/pytest -q -s -m "slow or distribution" -o faulthandler_timeout=0 tests/distribution

examples: $(VENV)/.dev  ## the programs of examples/ in five languages, JUnit and Testcontainers
	$(BIN)/pytest -q -s -m examples -o faulthandler_timeout=0 tests/examples

console-test: $(VENV)/.browser  ## the console in Debian's Chromium: states, looks, axe-core, keys; 4 minutes
	$(BIN)/pytest -q -rs -m browser -o faulthandler_timeout=0 tests/console

console-pictures: $(VENV)/.browser  ## the pictures of docs/console.md, from a broker with a fixed seed
	$(BIN)/python tests/console/pictures.py

incidents: $(VENV)/.dev  ## ten incidents by Java's and Go's clients: named in 15 s by console, top and doctor; 10 minutes
	$(BIN)/pytest -q -s -m interop -o faulthandler_timeout=0 tests/console/test_incidents.py

interop-smoke: $(VENV)/.dev  ## the Java and the pip client against a real broker
	$(BIN)/pytest -q -s -m interop -o faulthandler_timeout=0 tests/interop/test_smoke.py

interop: $(VENV)/.dev  ## five clients and Java's servers against rmq; a table at the end
	$(BIN)/pytest -q -m interop -o faulthandler_timeout=0 tests/interop tests/spark

interop-five: $(VENV)/.dev  ## the 5.x SDKs of five languages through Java's gRPC proxy; a table at the end
	$(BIN)/pytest -q -m interop -o faulthandler_timeout=0 tests/interop/test_five.py

interop-failover: $(VENV)/.dev  ## {rmq, Java} brokers under Java's two and rmq's controllers: masters killed and cut off ten times each; some hours, ROUNDS=2
	RMQ_INTEROP_ROUNDS=$(or $(ROUNDS),10) $(BIN)/pytest -v -rP -m interop -o faulthandler_timeout=0 -n $(WORKERS) --dist worksteal tests/interop/test_controller_brokers.py

chaos: $(VENV)/.dev  ## a Java group reads in order while brokers and members come and go; SECONDS=600, SEED=7
	$(BIN)/python tests/interop/order_chaos.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

bench: $(VENV)/.dev  ## throughput, CPU per message, latency; the store: group commit, reopen, verify, index
	$(BIN)/python bench/load/run.py
	$(BIN)/python bench/store.py
	$(BIN)/python bench/load/delivery.py
	$(BIN)/python bench/figures.py
	$(BIN)/pytest -q bench --benchmark-only --benchmark-columns=median,ops,rounds

bench-check: $(VENV)/.dev  ## fail if the ratio to the echo got 10 % worse, twice; BASE=bench/results/….json
	$(BIN)/python bench/compare.py $(BASE)

abuse: $(VENV)/.dev  ## what an honest client notices of 24 attacks; SECONDS=20, ATTACKS=buffers,silent
	$(BIN)/python bench/abuse.py $(if $(filter command line,$(origin SECONDS)),--seconds $(SECONDS)) $(if $(ATTACKS),--attacks "$(ATTACKS)")

fuzz: $(VENV)/.dev  ## a million bad frames, half with access control on; FRAMES=100000000, SEED=7, CODES=admin
	$(BIN)/python tests/security/fuzz.py --frames $(FRAMES) $(if $(SEED),--seed $(SEED)) $(if $(CODES),--codes $(CODES))

asan: $(VENV)/.dev  ## what calls compiled code under AddressSanitizer, stores also with a ring
	$(BIN)/python tests/asan.py $(TESTS)

spark: $(VENV)/.spark  ## jobs in a real Spark (needs Java 17)
	$(BIN)/pytest -q -m spark -o faulthandler_timeout=0 tests/spark

profile: $(VENV)/.dev  ## where the CPU goes, by part, and flame graphs in bench/results/ (needs perf); ARGS="--before rmq.tailRingBytes=0"
	$(BIN)/python bench/load/profiles.py $(ARGS)

bench-busy-disk: $(VENV)/.dev  ## p99 of sends at half the highest rate while another program reads or writes 500 MB/s; 7 minutes
	$(BIN)/python bench/busy_disk.py $(ARGS)

bench-replication: $(VENV)/.dev  ## a master with a slave, and one that waits for it, beside the echo and a pair of Java 5.5.0; 5 minutes
	$(BIN)/python bench/replication.py --java $(ARGS)

bench-controller: $(VENV)/.dev  ## what a controller costs an idle group, and how long a group is without a master; 5 minutes
	$(BIN)/python bench/controller.py $(ARGS)

bench-spark: $(VENV)/.spark  ## rows per second and CPU per million rows in Spark
	PYTHONPATH=.:spark $(BIN)/python bench/spark/run.py $(ARGS)
	$(BIN)/python bench/spark/topics.py --spark

bench-sql: $(VENV)/.dev  ## rmq sql over five million messages, beside its limits
	PYTHONPATH=.:spark $(BIN)/python bench/sql.py $(ARGS)

bench-client: $(VENV)/.dev  ## the Python client: sends, lists, consumers, threads under each loop; 2 minutes
	$(BIN)/python bench/client.py $(ARGS)

bench-ordinary: $(VENV)/.dev  ## few messages a second and consumers that wait, beside Java 5.5.0; 8 minutes
	$(BIN)/python bench/ordinary.py

bench-listeners: $(VENV)/.dev  ## consumers of Java, Go and C++ at 1,000 messages a second, beside Java 5.5.0; 23 minutes
	$(BIN)/python bench/listeners.py

bench-pop: $(VENV)/.dev  ## POP(32) with single acks, redelivery, POPs that wait, beside Java 5.5.0; 2 minutes
	$(BIN)/python bench/pop.py --java $(ARGS)

bench-timers: $(VENV)/.dev  ## timed messages: lateness, rates, start with a million, a crowded second, beside Java 5.5.0; 8 minutes
	$(BIN)/python bench/timers.py --java $(ARGS)

bench-growth: $(VENV)/.dev  ## many topics, members, pulls that wait, connections, with the worst pause; 10 minutes, ARGS="--parts queues"
	$(BIN)/python bench/growth.py $(ARGS)

bench-steady: $(VENV)/.dev  ## 5,000 messages a second while consumers come and go; memory and times must stay flat; MINUTES=30
	$(BIN)/python bench/steady.py $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

bench-console: $(VENV)/.dev  ## the console: memory, CPU, pauses at 10,000 topics, first paint; 4 minutes
	$(BIN)/python bench/console.py $(ARGS)

bench-java: $(VENV)/.dev  ## rmq, Java RocketMQ 5.5.0, Redis (if installed) and a C echo side by side; 9 minutes
	$(BIN)/python bench/compare_java.py

bench-java-clients: $(VENV)/.dev  ## Java's own benchmark clients against rmq and Java RocketMQ 5.5.0; 10 minutes
	$(BIN)/python bench/java_clients.py

$(VENV)/.ready: pyproject.toml setup.py $(SOURCES)
	@$(PYTHON) --version >/dev/null 2>&1 || { echo "No $(PYTHON) found: install Python 3.11 or newer, or say which with make PYTHON=python3.12." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$$($(PYTHON) --version) is too old: rmq needs 3.11 or newer; say which to use with make PYTHON=python3.12." >&2; exit 1; }
	@test "$$(uname -s)" = Linux || { echo "rmq runs on Linux (it needs epoll); this is $$(uname -s)." >&2; exit 1; }
	@set -- $${CC:-cc}; command -v "$$1" >/dev/null || { echo "No C compiler found: install gcc or clang, or name one with CC=." >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || { echo "Python.h is missing: install the development package of $$($(PYTHON) --version)." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make a virtual environment: install its venv package." >&2; exit 1; }
	@$(PYTHON) packaging/first_run.py $(VENV)
	@touch $@

$(VENV)/.dev: $(VENV)/.ready
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev"], sep="\n")' > $(VENV)/dev.txt
	$(BIN)/pip install -q --disable-pip-version-check -r $(VENV)/dev.txt
	@touch $@

$(VENV)/.browser: $(VENV)/.dev
	$(BIN)/pip install -q --disable-pip-version-check 'selenium>=4.51,<5'
	@touch $@

$(VENV)/.spark: $(VENV)/.dev
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e ".[spark,sql,follow,avro,delta,iceberg]" 'moto[server]>=5' matplotlib
	@# Spark looks for sources in the folders of sys.path, where an editable install is not
	$(BIN)/python -c 'import pathlib, sysconfig; pathlib.Path(sysconfig.get_path("purelib"), "rmq_spark.pth").write_text("$(CURDIR)/spark\n")'
	@touch $@
