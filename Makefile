# `make` sets everything up and runs scale demo; `make help` lists the rest.
override VENV := .venv
override READY := $(VENV)/ready
override VALIDATOR := .venv-validator
override PEERS := .venv-peers
override PYRIGHT := .venv-pyright
override LOWEST := .venv-lowest
override MUTANTS := .venv-mutants
# What is installed has one of the hashes that its file lists, or is not installed.
override BY_HASH := install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement
override SELF := install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
override CHECK_TORCH := case "$$TORCH" in ""|cpu|cuda) ;; *) echo "dpfl: TORCH is $$TORCH; it must be cpu or cuda" >&2; exit 2;; esac
# torch for "$$env": its CPU build where TORCH=cpu, or there is no driver of NVIDIA's, and an index or a folder has it; else PyPI's.
# Where a user named cpu, a failure ends it: 5.4 GB are not installed unasked. Why the CPU build failed is said in any case.
override INSTALL_TORCH := named="$$TORCH"; if [ -z "$$TORCH" ]; then if command -v nvidia-smi >/dev/null; then TORCH=cuda; else TORCH=cpu; fi; fi; \
  if [ "$$TORCH" = cpu ] && said=$$("$$env/bin/pip" $(BY_HASH) requirements.cpu.hashes --retries 0 --timeout 10 \
       --extra-index-url https://download.pytorch.org/whl/cpu 2>&1); then echo "torch: the CPU build (0.2 GB to download, 0.7 GB on disk)"; \
  else if [ "$$TORCH" = cpu ]; then printf '%s\n' "$$said" | grep -i -E 'error|hash|no space' | tail -n 2 >&2; fi; \
       if [ "$$named" = cpu ]; then echo "dpfl: the CPU build of torch could not be installed; make without TORCH=cpu takes the build of PyPI" >&2; exit 2; fi; \
       echo "torch: the build of PyPI; on Linux it has CUDA (2.5 GB to download, 5.4 GB on disk)"; \
       "$$env/bin/pip" $(BY_HASH) requirements.torch.hashes; \
       if ls -d "$$env"/lib/python*/site-packages/torch/lib/libtorch_cuda.so >/dev/null 2>&1; \
       then "$$env/bin/pip" $(BY_HASH) requirements.cuda.hashes; fi; fi
override HASHES := requirements.hashes requirements.cpu.hashes requirements.torch.hashes requirements.cuda.hashes
override SIDE_BY_SIDE := --numprocesses 2 --dist loadfile
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PYTHONNOUSERSITE := 1
# Recipes read these from the environment, as "$$SCALE". What a user sets is text: neither make nor a shell expands it.
override SET_BY_USER := PYTHON TORCH CONFIG PROFILE SCALE RERUN KEY KILLS PART KIND COUNT SEED
$(foreach name,$(SET_BY_USER),$(eval override $(name) := $$(value $(name))))
export $(SET_BY_USER)

.DEFAULT_GOAL := demo
.PHONY: env named demo quick paper pages dry-run plan test test-slow test-lowest test-crate test-slurm torture faults mutants lint docs links bench bench-peers verify release help

env: $(READY) ## set up the environment in .venv, alone (PYTHON=python3.12, else that of .venv or the first on PATH that fits; TORCH=cpu or cuda, else by the driver)

# An environment that is there stays as it is; what is named must fit it.
named:
	@if [ -e $(READY) ] && [ -n "$$PYTHON" ]; then ask='import sys; print(sys.version_info[:2])'; \
	if [ "$$("$$PYTHON" -c "$$ask" 2>/dev/null)" != "$$($(VENV)/bin/python -c "$$ask")" ]; then \
	  echo "dpfl: $(VENV) was set up with another Python than $$PYTHON; remove $(VENV) to set it up again" >&2; exit 2; fi; fi
	@if [ -e $(READY) ] && [ "$$TORCH" = cuda ] && ! ls -d $(VENV)/lib/python*/site-packages/torch/lib/libtorch_cuda.so >/dev/null 2>&1; then \
	  echo "dpfl: $(VENV) has torch without CUDA; remove $(VENV) to set it up again" >&2; exit 2; fi

$(READY): requirements.lock $(HASHES) pyproject.toml | named
	@$(CHECK_TORCH); PATH=$${PATH#*:}; fits() { "$$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)))' 2>/dev/null; }; \
	if [ -n "$$PYTHON" ]; then set -- "$$PYTHON"; elif fits $(VENV)/bin/python; then set -- $(VENV)/bin/python; \
	else set -- python3 python python3.13 python3.12 python3.11; fi; \
	for candidate; do if fits "$$candidate"; then python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then echo "dpfl: $${PYTHON:-no Python} is not Python 3.11, 3.12 or 3.13 with venv: name one, as make PYTHON=python3.12, or install one (Debian: python3-venv)" >&2; exit 2; fi; \
	echo "Setting up $(VENV) with $$("$$python" --version)"; echo "It takes 1.7 GB on disk with the CPU build of torch, 5.4 GB with CUDA, and some minutes."; \
	ask='import sys; print(sys.version_info[:2])'; was=$$($(VENV)/bin/python -c "$$ask" 2>/dev/null); \
	if [ "$$was" = "$$("$$python" -c "$$ask")" ]; then clear=; else clear=--clear; fi; "$$python" -m venv $(VENV) $$clear
	@set -e; env=$(VENV); $(INSTALL_TORCH)
	$(VENV)/bin/pip $(BY_HASH) requirements.hashes
	$(VENV)/bin/pip $(SELF)
	@touch $@

demo quick paper: $(READY) ## stand-in data, minutes | real data, few seeds | every published cell
	@dpfl run --scale $@ --profile "$${PROFILE:-default}" $${CONFIG:+--config "$$CONFIG"}
	@dpfl crate results/$@
	@dpfl report --config results/$@/config.yaml

dry-run: $(READY) ## show what would run (SCALE=demo, quick or paper)
	@dpfl run --dry-run --scale "$${SCALE:-demo}" --profile "$${PROFILE:-default}" $${CONFIG:+--config "$$CONFIG"}

pages: $(READY) ## make every page, report.html and the crate from the runs that are there, without training (demo unless SCALE=paper)
	@dpfl pages --config "results/$${SCALE:-demo}/config.yaml"
	@dpfl crate "results/$${SCALE:-demo}"

# Two processes of tests with two threads each would wait for one another: five times the time of one thread each.
test test-slow: export OMP_NUM_THREADS = 1
test: $(READY) ## run the fast tests
	pytest -m "not slow and not slurm" $(SIDE_BY_SIDE)

test-slow: $(READY) ## run the slow tests: larger cases, rare faults, the workflow killed and edited (PART=3/8: an eighth)
	pytest -m "slow and not slurm" $(SIDE_BY_SIDE) $${PART:+--part "$$PART"}

$(VALIDATOR)/ready: tests/provenance/validator.lock | $(READY)
	$(VENV)/bin/python -m venv $(VALIDATOR)
	$(VALIDATOR)/bin/pip $(BY_HASH) $<
	@touch $@

$(LOWEST)/ready: pyproject.toml | $(READY)
	$(VENV)/bin/python -m venv --clear $(LOWEST)
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[pipeline,test]'
	@touch $@

test-lowest: export OMP_NUM_THREADS = 1
test-lowest: $(LOWEST)/ready ## run the fast tests with the lowest version of each direct dependency, in an environment of its own
	$(LOWEST)/bin/python -m pytest -m "not slow and not slurm and not workflow" $(SIDE_BY_SIDE)
	$(LOWEST)/bin/python -m pytest tests/test_notebooks.py # with these versions no docs are built, which run the notebooks elsewhere
	$(LOWEST)/bin/python -m pytest tests/workflow/test_workflow.py -k sixth_paper # the lowest Snakemake runs every stage once

test-crate: $(READY) $(VALIDATOR)/ready ## check a crate with roc-validator in an environment of its own, without network
	pytest -m slow tests/provenance/test_crate.py

test-slurm: $(READY) ## run the workflow on a real SLURM of three nodes on this machine (root; installs Debian's slurm-wlm, munge)
	@if [ "$$(id -u)" = 0 ] && ! command -v slurmctld >/dev/null; then \
	  apt-get -qq update && apt-get -qq install -y slurm-wlm munge >/dev/null || echo "slurm-wlm and munge could not be installed"; fi
	pytest -m slurm $(SIDE_BY_SIDE) tests/slurm

torture: $(READY) ## kill the demo at 100 random moments and compare its results with an undisturbed run (KILLS=100)
	python tests/workflow/torture.py --kills "$${KILLS:-100}" $${CONFIG:+--config "$$CONFIG"}

faults: $(READY) ## inject faults in bulk and count the outcomes (KIND=configurations, command_lines, mirrors, files, commands; COUNT SEED)
	python tests/faults/inject.py "$${KIND:-configurations}" $${COUNT:+--count "$$COUNT"} --seed "$${SEED:-0}"

$(MUTANTS)/ready: tests/mutants/mutants.lock | $(READY)
	$(VENV)/bin/python -m venv $(MUTANTS)
	$(MUTANTS)/bin/pip $(BY_HASH) $<
	@touch $@

mutants: $(MUTANTS)/ready ## plant small faults in a copy of the code, one at a time, and count those that the tests find (COUNT=300 SEED)
	@mkdir -p .mutants
	$(MUTANTS)/bin/python tests/mutants/draw.py --count "$${COUNT:-300}" --seed "$${SEED:-0}" .mutants/drawn.json
	python tests/mutants/run.py .mutants/drawn.json

plan: $(READY) ## show jobs, hours and memory of a run before it starts (demo unless SCALE=paper; PROFILE=slurm)
	@dpfl plan --scale "$${SCALE:-demo}" --profile "$${PROFILE:-default}" $${CONFIG:+--config "$$CONFIG"}

$(PYRIGHT)/ready: tests/pyright.lock | $(READY)
	$(VENV)/bin/python -m venv $(PYRIGHT)
	$(PYRIGHT)/bin/pip $(BY_HASH) $<
	@touch $@

lint: $(READY) $(PYRIGHT)/ready ## check style, types, layers and workflow: ruff, pyright, import-linter, snakefmt, snakemake --lint
	ruff check . && ruff format --check .
	$(PYRIGHT)/bin/pyright
	lint-imports --no-logo
	snakefmt --check Snakefile workflow
	snakemake --lint

docs: $(READY) ## build the docs site in docs/_build/html; a broken link or example fails it
	sphinx-build --fail-on-warning --keep-going -b html docs docs/_build/html
	sphinx-build -q -b doctest docs docs/_build/doctest

links: $(READY) ## try every link of the docs site to the outside; it needs the network
	sphinx-build -q -b linkcheck docs docs/_build/links

bench: $(READY) ## measure speed as ratios; exits 1 when a target is missed
	status=0; for file in $(filter-out benchmarks/%peer.py benchmarks/peers.py benchmarks/%loop.py,$(wildcard benchmarks/*.py)); do \
	  python $$file || status=1; done; exit $$status

$(PEERS)/ready: benchmarks/peers.lock $(HASHES) | $(READY)
	@$(CHECK_TORCH)
	$(VENV)/bin/python -m venv $(PEERS)
	@set -e; env=$(PEERS); $(INSTALL_TORCH)
	$(PEERS)/bin/pip $(BY_HASH) requirements.hashes
	$(PEERS)/bin/pip $(BY_HASH) $<
	$(PEERS)/bin/pip $(SELF)
	@touch $@

bench-peers: $(PEERS)/ready ## measure speed against Opacus, JAX and training without privacy, in an environment of its own
	$(PEERS)/bin/python benchmarks/peers.py

verify: $(READY) ## check the shipped results without training (SCALE=paper); RERUN=5 trains five runs again and compares
	@dpfl audit --quick $${RERUN:+--rerun "$$RERUN"} "results/$${SCALE:-paper}"

release: $(READY) ## sign the results' manifest with an SSH key (SCALE=paper KEY=~/.ssh/id_ed25519), without network
	@dpfl pages --config "results/$${SCALE:-paper}/config.yaml"
	@dpfl audit --files-only "results/$${SCALE:-paper}"
	@dpfl release "results/$${SCALE:-paper}" --key "$${KEY:-$$HOME/.ssh/id_ed25519}"

help: ## list the targets
	@awk -F ' ## ' '/^[a-z][a-z -]*:.* ## / {split($$1, target, ":"); printf "%-18s %s\n", target[1], $$2}' Makefile
