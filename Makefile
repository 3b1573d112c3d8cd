# Two commands do everything: `make demo` and `make test`. Both set up what they need and say what they install.
SHELL := /bin/bash
PYTHON := .venv/bin/python

.PHONY: help setup demo test check lab lab-jetpack6 lab-jetpack7 lab-aarch64 lab-machine lab-container pycuda-wheels lock format bench bench-stages bench-rooflines bench-capacity fuzz soak reliability docs pictures kernels clean

help:            ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/.ready   ## Debian packages (where allowed) and .venv

.venv/.ready: setup.cfg pyproject.toml .ci/setup
	@bash .ci/setup

demo: setup      ## four synthetic cameras -> INT8 YOLO, calibrated and proven -> MQTT -> an independent subscriber
	@.venv/bin/edge-deploy demo $(ARGS)

test: setup      ## everything that can run on one Linux machine; needs the real parts
	@bash .ci/setup --require-all
	@$(MAKE) --no-print-directory check
	@$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(ARGS)

check: setup     ## ruff format, ruff, mypy --strict, the house test
	@.venv/bin/ruff format --check edge tests tools
	@.venv/bin/ruff check edge tests tools
	@.venv/bin/mypy
	@$(PYTHON) -m pytest -q tests/test_house.py

lab: setup       ## provision and push against virtual devices; needs root (systemd-nspawn)
	@bash .ci/setup --require-all
	@EDGE_REQUIRE_LAB=1 $(PYTHON) -m pytest tests/lab $(ARGS)

lab-jetpack6: setup   ## the same on Ubuntu 22.04, which JetPack 6 is made of; needs Ubuntu's archive keyring
	@$(MAKE) --no-print-directory lab EDGE_LAB_SUITE=jammy

lab-jetpack7: setup   ## the same on Ubuntu 24.04, which JetPack 7 is made of; needs Ubuntu's archive keyring
	@$(MAKE) --no-print-directory lab EDGE_LAB_SUITE=noble

lab-aarch64: setup   ## the same on an emulated aarch64; needs qemu-system-arm, qemu-user-static and binfmt_misc
	@bash .ci/setup --require-all
	@EDGE_LAB_ARCH=arm64 EDGE_REQUIRE_LAB=1 $(PYTHON) -m pytest tests/lab/test_foreign.py $(ARGS)

lab-machine: setup   ## clocks and plugs of a device with a kernel of its own; needs qemu-system-x86
	@bash .ci/setup --require-all
	@EDGE_LAB_MACHINE=1 EDGE_REQUIRE_LAB=1 $(PYTHON) -m pytest tests/lab/test_machine.py $(ARGS)

lab-container: setup   ## the device image on Debian, amd64 and emulated aarch64; and compose.yaml; needs buildah, podman, runc, netavark, aardvark-dns, qemu-user-static
	@bash .ci/setup --require-all
	@EDGE_REQUIRE_LAB=1 EDGE_LAB_CONTAINER=1 $(PYTHON) -m pytest tests/lab/test_container.py tests/lab/test_compose.py $(ARGS)

pycuda-wheels: setup   ## pycuda for Jetsons, which provision then gathers; needs root, debootstrap, qemu-user-static
	@$(PYTHON) -m tools.pycuda $(ARGS)

lock: setup      ## choose the wheels of devices anew, with their SHA-256: edge/deploy/provision/lock.json
	@$(PYTHON) -m tools.lock $(ARGS)

format: setup    ## let ruff write
	@.venv/bin/ruff format edge tests tools
	@.venv/bin/ruff check --fix edge tests tools

bench: setup     ## measure; writes docs/benchmarks.md
	@$(PYTHON) -m tests.bench $(ARGS)

bench-stages: setup   ## interpreter time per frame by stage, and how many cameras one process serves; its section of docs/benchmarks.md
	@$(PYTHON) -m tests.bench --only-stages $(ARGS)

bench-rooflines: setup   ## bounds and measured times of models on this machine, alone; its section of docs/benchmarks.md
	@$(PYTHON) -m tests.bench --only-rooflines $(ARGS)

bench-capacity: setup   ## live streams without drops, predicted and found, alone; its section of docs/benchmarks.md
	@$(PYTHON) -m tests.bench --only-capacity $(ARGS)

fuzz: setup      ## what others write, fuzzed by coverage (atheris, x86-64): ARGS="--seconds 600 messages"
	@$(PYTHON) -m tests.fuzz $(ARGS)

soak: setup      ## thirty minutes of the service while all around it is broken; writes docs/soak.md
	@$(PYTHON) -m tests.soak $(ARGS)

reliability: setup   ## every power cut and every disk fault of a push; writes docs/reliability.md
	@$(PYTHON) -m tests.reliability

docs: setup      ## schemas that are generated from the types
	@$(PYTHON) -m edge.publish.schema docs
	@$(PYTHON) -m edge.engine.jsonschema pipelines/pipeline.schema.json
	@$(PYTHON) -m edge.log_events docs/log-events.md

pictures: setup  ## the pictures of README and docs, from the product itself: docs/pictures; needs Chromium
	@bash .ci/setup --require-all
	@$(PYTHON) -m tools.pictures $(ARGS)

kernels: setup   ## compile the CUDA kernels that the package ships; needs no GPU
	@$(PYTHON) -m edge.engine.cuda.compile

clean:           ## everything that setup and tests made
	rm -rf .venv .cache build out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
