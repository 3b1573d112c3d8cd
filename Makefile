# `make demo` shows it, `make test` tests it. Each sets up what it needs and says what it installs.
SHELL := /bin/bash
PYTHON := .venv/bin/python
# A test that hangs for twenty minutes is named, with the stack of each thread, and ends the run.
HANGING := -o faulthandler_timeout=1200 -o faulthandler_exit_on_timeout=true
TESTS := $(PYTHON) -m pytest -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(HANGING)

# What mypy finds rests on NumPy's stubs: those of Python 3.10 are others, and from 3.12 on their language is newer.
MINOR = $(shell $(PYTHON) -c 'import sys; print(sys.version_info.minor)')
TYPES_10 = echo "types are checked under Python 3.11 and later"
TYPES_11 = .venv/bin/mypy
TYPES = $(or $(TYPES_$(MINOR)),.venv/bin/mypy --python-version 3.$(MINOR))

# Hundreds of commands start in the tests: each would compile what it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-test demo test test-rest test-all check lab lab-jetpack6 lab-jetpack7 lab-aarch64 lab-machine lab-container pycuda-wheels lock format bench bench-stages exports fuzz soak reliability docs pictures kernels clean

help:            ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup:           ## what the demo needs: Debian packages (where allowed) and .venv
	@bash .ci/setup demo

setup-test:
	@$(if $(IS_SET_UP),,bash .ci/setup test)

demo: setup      ## four synthetic cameras -> INT8 YOLO, calibrated and proven -> MQTT -> an independent subscriber
	@.venv/bin/edge-deploy demo $(ARGS)

test: setup-test ## ten minutes: the checks, and of every promise what shows it; set up, with real parts
	@$(PYTHON) -m tests.support.cuda_driver & compiling=$$!; \
	  $(MAKE) --no-print-directory check IS_SET_UP=yes; checked=$$?; \
	  wait $$compiling && exit $$checked
	@$(TESTS) --ignore tests/lab -m "not slow" --record=.cache/quick.json $(ARGS)

test-rest:       ## everything else that one Linux machine can run; installs a Home Assistant, a Node-RED, a browser
	@bash .ci/setup rest
	@$(PYTHON) -m tests.support.cuda_driver
	@$(TESTS) -m "slow or lab" --record=.cache/rest.json $(ARGS)

test-all: test test-rest   ## both, and what each test file costs: tests/costs.json
	@$(PYTHON) -m tests.costs .cache/quick.json .cache/rest.json

check: setup-test   ## ruff format, ruff, mypy --strict, the house test
	@.venv/bin/ruff format --check edge tests tools
	@.venv/bin/ruff check edge tests tools
	@$(TYPES)
	@$(PYTHON) -m pytest -q tests/test_house.py

lab: setup-test       ## provision and push against virtual devices; needs root (systemd-nspawn)
	@EDGE_REQUIRE_LAB=1 $(PYTHON) -m pytest tests/lab $(ARGS)

lab-jetpack6: setup-test   ## the same on Ubuntu 22.04, which JetPack 6 is made of; needs Ubuntu's archive keyring
	@$(MAKE) --no-print-directory lab EDGE_LAB_SUITE=jammy

lab-jetpack7: setup-test   ## the same on Ubuntu 24.04, which JetPack 7 is made of; needs Ubuntu's archive keyring
	@$(MAKE) --no-print-directory lab EDGE_LAB_SUITE=noble

lab-aarch64: setup-test   ## the same on an emulated aarch64; needs qemu-system-arm, qemu-user-static and binfmt_misc
	@EDGE_LAB_ARCH=arm64 EDGE_REQUIRE_LAB=1 $(PYTHON) -m pytest tests/lab/test_foreign.py $(ARGS)

lab-machine: setup-test   ## clocks and plugs of a device with a kernel of its own; needs qemu-system-x86
	@EDGE_LAB_MACHINE=1 EDGE_REQUIRE_LAB=1 $(PYTHON) -m pytest tests/lab/test_machine.py $(ARGS)

lab-container: setup-test   ## the device image on Debian, amd64 and emulated aarch64; and compose.yaml; needs buildah, podman, runc, netavark, aardvark-dns, qemu-user-static
	@EDGE_REQUIRE_LAB=1 EDGE_LAB_CONTAINER=1 $(PYTHON) -m pytest tests/lab/test_container.py tests/lab/test_compose.py $(ARGS)

pycuda-wheels: setup-test   ## pycuda for Jetsons, which provision then gathers; needs root, debootstrap, qemu-user-static
	@$(PYTHON) -m tools.pycuda $(ARGS)

lock: setup-test      ## choose the wheels of devices anew, with their SHA-256: edge/deploy/provision/lock.json
	@$(PYTHON) -m tools.lock $(ARGS)

format: setup-test    ## let ruff write
	@.venv/bin/ruff format edge tests tools
	@.venv/bin/ruff check --fix edge tests tools

bench: setup-test     ## measure; writes out/benchmarks.md
	@$(PYTHON) -m tests.bench $(ARGS)

bench-stages: setup-test   ## interpreter time per frame by stage, and how many cameras one process serves
	@$(PYTHON) -m tests.bench.stages

exports: setup-test   ## hold the export matrix of the tests against the real exporter (ultralytics with torch: 6 GB); ARGS="--only 11-"
	@$(PYTHON) -m tests.exports $(ARGS)

fuzz: setup-test      ## what others write, fuzzed by coverage (atheris, x86-64): ARGS="--seconds 600 messages"
	@$(PYTHON) -m tests.fuzz $(ARGS)

soak: setup-test      ## thirty minutes of the service while all around it is broken; writes out/soak.md
	@$(PYTHON) -m tests.soak $(ARGS)

reliability: setup-test   ## every power cut and every disk fault of a push; writes out/reliability.md
	@$(PYTHON) -m tests.reliability

docs: setup-test      ## schemas that are generated from the types
	@$(PYTHON) -m tools.message_schemas docs
	@$(PYTHON) -m tools.pipeline_schema pipelines/pipeline.schema.json
	@$(PYTHON) -m tools.log_events_page
	@$(PYTHON) -m tools.proofs_page

pictures:        ## the pictures of README and docs, from the product itself: docs/pictures; needs Chromium
	@bash .ci/setup rest
	@$(PYTHON) -m tools.pictures $(ARGS)

kernels:         ## compile the CUDA kernels that the package ships; needs no GPU
	@bash .ci/setup rest
	@$(PYTHON) -m tools.compile

clean:           ## everything that setup and tests made
	rm -rf .venv .cache build out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
