# Rondo. `make help` lists what there is; every target sets up what it needs, and only that.
#
# CARGO_TARGET_DIR is honoured, as cargo does. ARGS goes to the server (`make run ARGS="--advertise 192.0.2.7"`).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

ARGS ?=
# A copy of web/node_modules is complete when this file is younger than the lock file.
NPM_STAMP := web/node_modules/.installed
# Other people's WebRTC stacks, for `make accept` only.
PEERS_STAMP := scripts/peers/node_modules/.installed
VENV_STAMP := .venv/.installed

.PHONY: help run test test-rust test-web lint fmt web accept fuzz bench bench-micro

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: tools-rust ## build and start the server on this machine, and say its address
	@exec cargo run --locked -- serve --dev $(ARGS)

test: tools-rust ## everything that must hold before a change goes in
	@scripts/step.sh "format" cargo fmt --all --check
	@$(MAKE) test-rust
	@$(MAKE) test-web
	@echo "make test: all right"

# clippy first: it stops at the first mistake minutes before the tests would.
test-rust: tools-rust ## the Rust half of `make test`
	@scripts/step.sh "clippy" cargo clippy --locked --workspace --all-targets -- -D warnings
	@scripts/step.sh "cargo test" cargo test --locked --workspace --no-fail-fast

test-web: $(NPM_STAMP) ## the browser half of `make test`
	@scripts/step.sh "web: types" npm --prefix web run --silent check
	@scripts/step.sh "web: tests" npm --prefix web test --silent
	@scripts/step.sh "web: dist is the build of the sources" scripts/web_dist.sh check

lint: tools-rust $(NPM_STAMP) ## format, clippy and types, without running anything
	@scripts/step.sh "format" cargo fmt --all --check
	@scripts/step.sh "clippy" cargo clippy --locked --workspace --all-targets -- -D warnings
	@scripts/step.sh "web: types" npm --prefix web run --silent check

fmt: tools-rust ## format the Rust sources
	@cargo fmt --all

web: $(NPM_STAMP) ## rebuild the pages into web/dist (committed: commit it with its sources)
	@scripts/web_dist.sh build

accept: tools-rust $(NPM_STAMP) $(PEERS_STAMP) $(VENV_STAMP) ## real clients against the real server; prints a table of what held
	@scripts/setup.sh chromium ffmpeg
	@.venv/bin/python scripts/accept.py

fuzz: tools-rust tools-cxx ## 10 minutes on every fuzz target (fuzz/README.md); ARGS="--seconds 60 wire_rtp"
	@python3 scripts/fuzz.py $(ARGS)

bench: tools-rust ## Rondo beside Janus on one core each (bench/README.md)
	@scripts/step.sh "release build" cargo build --locked --release --bin rondo
	@python3 bench/side_by_side.py $(ARGS)

bench-micro: tools-rust ## what a packet costs in each hot module (ARGS: a name to filter by)
	@cargo bench --locked --workspace --bench media --bench worker --bench room -- $(ARGS)

.PHONY: tools-rust tools-cxx tools-node tools-python
tools-rust:
	@scripts/setup.sh rust
tools-cxx:
	@scripts/setup.sh cxx
tools-node:
	@scripts/setup.sh node
tools-python:
	@scripts/setup.sh python

$(NPM_STAMP): web/package-lock.json web/package.json | tools-node
	@scripts/step.sh "web: npm ci" npm --prefix web ci --no-audit --no-fund --loglevel=error
	@touch $@

$(PEERS_STAMP): scripts/peers/package-lock.json scripts/peers/package.json | tools-node
	@scripts/step.sh "peers: npm ci" npm --prefix scripts/peers ci --no-audit --no-fund --loglevel=error
	@touch $@

$(VENV_STAMP): scripts/requirements.txt | tools-python
	@scripts/step.sh "python: .venv" scripts/venv.sh
	@touch $@
