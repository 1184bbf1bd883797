# Everything a fresh machine needs comes from these targets; none asks for another first.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.setup-done

# Keeps compiled modules, whatever the environment says: tests start hundreds of programs, and each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

# Another version of Kafka than the usual one, for all brokers of tests, the demo and the soak: make integration KAFKA=3.9.1
ifeq ($(origin KAFKA),command line)
export RINGFENCE_KAFKA_VERSION := $(KAFKA)
endif

.PHONY: setup demo demo-bridge test long unit integration faults mutants simulate soak containers lint bench wheels lock cli-docs docs clean

setup: $(STAMP)
	@test -z "$$RINGFENCE_KAFKA_VERSION" || $(BIN)/python -m app.embedded

$(STAMP): requirements.lock pyproject.toml client/pyproject.toml setup.py $(wildcard native/src/*)
	@command -v $(PYTHON) >/dev/null || { echo "Ringfence needs Python 3.11 or later: install python3.11 and python3.11-venv, or set PYTHON="; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements.lock
	rm -f native/_core.*.so  # Python prefers a core for one version, as earlier setups built it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable client --editable .
	$(BIN)/python -m app.embedded
	@$(BIN)/python -m native
	@touch $@

demo: setup
	$(BIN)/ringfence demo

# Two clusters, and a bridge that dies, is cut off, and sees a producer fail over.
demo-bridge: setup
	$(BIN)/ringfence demo --bridge

# Six at a time on two cores: half of the time they wait for sessions to run out. tests/conftest.py gives the order.
# Lint runs beside the tests, and its output comes when it ends.
test: setup
	@$(MAKE) --no-print-directory --output-sync lint & lint=$$!; \
	$(BIN)/python -m pytest --numprocesses 6 --dist loadfile --no-loadscope-reorder -m "not long"; tests=$$?; \
	wait $$lint && exit $$tests

# What `make test` leaves out, because it takes long and a quicker test is beside it.
long: setup
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile -m "long and not alone"
	$(BIN)/python -m pytest -m alone
	RINGFENCE_EXAMPLES=all $(BIN)/python -m pytest --numprocesses 2 tests/property tests/reconcile/finders/test_repeated_histories.py

unit: setup
	$(BIN)/python -m pytest tests/unit tests/property

integration: setup
	$(BIN)/python -m pytest tests/integration

faults: setup
	$(BIN)/python -m pytest tests/faults

# Puts deliberate bugs into a copy, one at a time, and shows that each is caught by a named test.
mutants: setup
	$(BIN)/python -m tests.mutants --jobs 2

# Schedules of faults in simulated worlds of lanes and consumers, on virtual time; on all cores; fresh seeds unless SEED is given. One that fails is made short.
simulate: setup
	$(BIN)/python -m tests.simulator $(if $(filter command line environment,$(origin SEED)),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(WORLD),--world $(WORLD))

# Rounds of faults; a round that fails names the seed and the faults that run it again.
MINUTES ?= 60
SEED    ?= 1
soak: setup
	$(BIN)/python -m tests.harness.soak --minutes $(MINUTES) --seed $(SEED) \
		$(if $(NEMESES),--nemeses $(NEMESES)) $(if $(WORKLOAD),--workload $(WORKLOAD)) $(if $(BROKERS),--brokers $(BROKERS)) $(if $(KEEP),--keep $(KEEP))

# Builds both images, runs docker-compose.yml, kills a worker, and runs the nightly profile. It installs what a Debian lacks, and says so.
containers: setup
	$(BIN)/python -m tests.containers $(if $(STAND_INS),--stand-ins) $(if $(KEEP),--keep)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.prose

# Others' libraries go into an environment of their own; where the registry does not serve them, the bench says what it leaves out.
BENCH_VENV := .venv-bench
bench: setup
	@test -e $(BENCH_VENV)/.setup-done -a ! bench/requirements.lock -nt $(BENCH_VENV)/.setup-done || { \
		$(PYTHON) -m venv --clear $(BENCH_VENV) \
		&& $(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r bench/requirements.lock \
		&& touch $(BENCH_VENV)/.setup-done; } || rm -rf $(BENCH_VENV)
	$(BIN)/python -m bench $(if $(QUICK),--quick)

# Two: ringfence-client is for users' own environments; ringfence, the application, is for one of its own, and needs the other.
# The same commit gives the same bytes: times are the commit's, file modes do not follow the umask, and leftovers of an earlier build
# are not copied. A tree without a repository (`git archive`) gives them too: the archive records the commit's time.
COMMIT      = $(if $(wildcard .git),$(shell git rev-parse --quiet --verify HEAD))
COMMIT_TIME = $(if $(COMMIT),$(shell git log -1 --format=%ct),$(shell grep -x '[0-9][0-9]*' .commit-time || echo 315532800))
LEFTOVERS   = -name '.?*' -o -name __pycache__ -o -name '*.egg-info' -o -name '*.so' -o -path ./build -o -path ./client/build -o -path ./data -o -path ./dist
FILES       = $(if $(COMMIT),git ls-files -z,find . \( $(LEFTOVERS) \) -prune -o -type f -print0)
wheels: export SOURCE_DATE_EPOCH ?= $(COMMIT_TIME)
wheels: setup
	rm -rf dist build && mkdir -p build/tree
	$(FILES) | tar --create --null --files-from=- --mode=u=rwX,go=rX | tar --extract --preserve-permissions --directory build/tree
	umask 022 && $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--wheel-dir dist ./build/tree/client ./build/tree
	@cd dist && sha256sum *.whl

# Generates docs/cli.md from the verbs, docs/configuration.md and conf/ringfence.schema.json from the settings, and the example in
# docs/sizing.md from `ringfence plan`.
cli-docs: setup
	$(BIN)/python -m docs.generator.reference

# Renews the locks after a change of a pyproject.toml: requirements.lock for development and tests, and beside it, in the same
# versions, what each image needs and no more. The client is no dependency that anyone fetches: it stands beside.
COMPILE = $(VENV)-lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	--no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-annotate
lock:
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet pip-tools
	grep -v '"ringfence-client==' pyproject.toml >$(VENV)-lock/pyproject.toml
	$(COMPILE) --extra dev --extra reconcile --output-file requirements.lock $(VENV)-lock/pyproject.toml client/pyproject.toml
	$(COMPILE) --constraint requirements.lock --output-file requirements-worker.lock $(VENV)-lock/pyproject.toml client/pyproject.toml
	$(COMPILE) --constraint requirements.lock --extra reconcile --output-file requirements-reconcile.lock \
		$(VENV)-lock/pyproject.toml client/pyproject.toml
	printf 'setuptools\nwheel\n' >$(VENV)-lock/build.in
	$(COMPILE) --constraint requirements.lock --output-file requirements-build.lock $(VENV)-lock/build.in
	$(COMPILE) --output-file bench/requirements.lock bench/requirements.in
	$(COMPILE) --output-file tests/containers/requirements.lock tests/containers/requirements.in
	$(COMPILE) --output-file examples/readers/requirements.lock examples/readers/requirements.in
	$(COMPILE) --output-file docs/requirements.lock docs/requirements.in
	rm -rf $(VENV)-lock

# The site of docs/, in site/: search, navigation, dark mode; it needs no network to view.
DOCS_VENV := .venv-docs
docs:
	@test -e $(DOCS_VENV)/.setup-done -a ! docs/requirements.lock -nt $(DOCS_VENV)/.setup-done || { \
		$(PYTHON) -m venv --clear $(DOCS_VENV) \
		&& $(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.lock \
		&& touch $(DOCS_VENV)/.setup-done; }
	NO_MKDOCS_2_WARNING=1 PYTHONDONTWRITEBYTECODE=1 $(DOCS_VENV)/bin/mkdocs build --quiet --strict
	@echo "Open site/index.html in a browser."

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(DOCS_VENV) site .venv-containers data dist .mypy_cache .ruff_cache .import_linter_cache *.egg-info build client/build client/*.egg-info
