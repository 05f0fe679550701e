# SPDX-License-Identifier: Apache-2.0
# The front door: sets the machine up, configures with Meson and runs things. All that is made lies under build/.

BUILD  ?= build
PREFIX ?= /usr/local
DESTDIR ?=
WERROR ?= 0
FUZZ_SECONDS ?= 20
SOAK_CYCLES ?= 100000
TEST_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
ACCURACY_ARGS ?=
IMAGE_NAME ?= docker.io/library/aliquot

# Debian's own tools, whatever else comes first in PATH or in a virtual environment.
export PATH := /usr/sbin:/sbin:/usr/bin:/bin:$(PATH)
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV MAKEFLAGS MFLAGS
ifeq ($(origin CC),default)
CC := gcc
endif
export CC
export ALIQUOT_BUILD := $(abspath $(BUILD))
export ALIQUOT_SETUP_LOG := $(abspath $(BUILD))/setup.log

MESON  := /usr/bin/meson
PYTHON := /usr/bin/python3

.PHONY: all build setup demo test test-aarch64 test-clients test-dra soak accuracy bench bench-peer lint sanitize fuzz e2e image install deb test-deb clean help
.DEFAULT_GOAL := build

help:
	@echo 'make            install missing packages, configure, build'
	@echo 'make demo       a one-node cluster with two simulated GPUs (KEEP=1: leave it running)'
	@echo 'make test       all tests; TEST_ARGS="-k NAME" or "--suite unit" for some'
	@echo 'make test-aarch64  libvgpu.so for aarch64: cross-built, its doors tried under qemu'
	@echo 'make test-dra   the daemon against kubelets, crashes at every system call, fuzzers (20 minutes)'
	@echo 'make soak       $(SOAK_CYCLES) prepare/unprepare cycles: nothing may grow (SOAK_CYCLES)'
	@echo 'make test-clients  NVIDIA'\''s nvidia-smi, numba and pycuda on the simulated driver (fetched, not installed)'
	@echo 'make bench      the figures of docs/benchmarks.md, into build/bench/results.json'
	@echo 'make accuracy   how well compute limits hold, in virtual time: the table and plot of docs/benchmarks.md'
	@echo 'make bench-peer PEER_LIBVGPU=PATH  the same of the library beside another one that takes HAMi-core'\''s environment'
	@echo 'make lint       format, clang-tidy, cppcheck, shellcheck, pyflakes'
	@echo 'make sanitize   unit tests under ASan and UBSan, those with threads under TSan'
	@echo 'make fuzz       each fuzz target for FUZZ_SECONDS ($(FUZZ_SECONDS)) seconds'
	@echo 'make e2e        on a real cluster (needs KUBECONFIG; E2E_INSTALL=chart: out of image and chart)'
	@echo 'make image      the container image, an OCI archive: $(BUILD)/image/aliquot.tar (IMAGE_NAME)'
	@echo 'make deb        the Debian package, into $(BUILD)/'
	@echo 'make test-deb   that it installs, upgrades and goes without a trace, and what lintian says'
	@echo 'make install    below DESTDIR, with PREFIX ($(PREFIX))'
	@echo 'make clean      remove $(BUILD)/'

all: build

setup:
	@tools/setup.sh build run

build: setup
	@tools/build.sh $(BUILD) -Dprefix=$(abspath $(PREFIX)) -Dwerror=$(if $(filter 1,$(WERROR)),true,false)

demo: build
	@$(PYTHON) demo/demo.py $(if $(KEEP),--keep) $(DEMO_ARGS)

test: build
	@tools/setup.sh test
	@$(PYTHON) tests/run.py --build $(BUILD) $(TEST_ARGS)

test-aarch64:
	@tools/setup.sh build aarch64
	@tools/aarch64.sh $(BUILD)

# All that the daemon promises to kubelets, API servers and its own records: every place where it can be killed or a call
# can fail (ALIQUOT_FAULTS=sample: some), and the fuzzers of what it reads.
DRA_SUITES := unit/base unit/daemon faults fuzz \
    $(addprefix integration/,daemon kubelet publisher gpus path sandbox weather)
test-dra: build
	@tools/setup.sh fuzz
	@tools/fuzz.sh $(BUILD)
	@ALIQUOT_FAULTS=$(or $(ALIQUOT_FAULTS),full) FUZZ_SECONDS=$(FUZZ_SECONDS) \
	    FUZZ_TARGETS="grpc messages record quantity share_config allocation" \
	    $(PYTHON) tests/run.py --build $(BUILD) $(addprefix --suite ,$(DRA_SUITES)) $(TEST_ARGS)

soak: build
	@$(PYTHON) bench/soak.py --cycles $(SOAK_CYCLES)

test-clients: build
	@$(PYTHON) tests/run.py --build $(BUILD) --suite clients $(TEST_ARGS)

bench-peer: build
	@$(PYTHON) bench/run.py --peer "$(PEER_LIBVGPU)" $(BENCH_ARGS)

accuracy: build
	@$(PYTHON) bench/accuracy.py $(ACCURACY_ARGS)

bench: build
	@$(PYTHON) bench/run.py $(BENCH_ARGS)

lint: build
	@tools/setup.sh lint
	@tools/lint.sh $(BUILD)

sanitize: setup
	@tools/sanitize.sh $(BUILD)

fuzz: setup
	@tools/setup.sh fuzz
	@tools/fuzz.sh $(BUILD)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) $(PYTHON) tests/run.py --build $(BUILD)/fuzz --suite fuzz

e2e: build $(if $(filter chart,$(E2E_INSTALL)),image)
	@$(PYTHON) tests/e2e/run.py

image: build
	@$(PYTHON) tools/image/make.py --build $(BUILD) --name $(IMAGE_NAME)

# As root after a build by somebody else: nothing is rebuilt where the build is up to date.
install: build
	@$(MESON) install -C "$(BUILD)" --no-rebuild $(if $(DESTDIR),--destdir "$$(realpath -ms "$(DESTDIR)")")

deb: setup
	@tools/setup.sh deb
	@tools/deb.sh $(BUILD)

test-deb: deb
	@$(PYTHON) tests/run.py --build $(BUILD) --suite package $(TEST_ARGS)

clean:
	rm -rf $(BUILD)
