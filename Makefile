# The commands of this repository, one list for people and for CI. `make` alone shows it.

CARGO ?= cargo
# For `make fuzz`: how long each target runs.
SECONDS ?= 30
# For `make bench`: what tapline-bench is asked for, such as `BENCH="file --size 256M"`.
BENCH ?= all

# For `make libpcap`: the name that programs ask for; libpcap.so.1 outside of Debian and its kin.
SONAME ?= libpcap.so.0.8
LIBPCAP = target/libpcap

.PHONY: help demo test test-tools loom lint bench fuzz libpcap

help:
	@echo "make demo    build, send mixed traffic over a virtual link, capture it, show it"
	@echo "make test    install what the tests need (as root on Debian) and run every test"
	@echo "make loom    run the shared ring's protocols in every order of steps that the memory model allows"
	@echo "make lint    formatting and lints, as CI demands them"
	@echo "make bench   compare with tcpdump and dumpcap on this machine: BENCH=\"file --size 256M\" for a part"
	@echo "make libpcap libpcap.so and its headers in $(LIBPCAP), for programs that use libpcap; SONAME=libpcap.so.1"
	@echo "make fuzz    run each fuzz target for SECONDS=$(SECONDS)"

demo:
	@bash scripts/demo.sh

test: test-tools
	$(CARGO) test --workspace --locked --features tapline-cli/parquet
	$(CARGO) test --locked -p tapline-graph --lib without_the_feature
	$(CARGO) test --release --locked -p tapline-bpf -p tapline-ir -p tapline-ebpf -p tapline-filter -p tapline-fpl -p tapline-filterset -p tapline-jit --lib
	$(CARGO) test --release --locked -p tapline-fpl --test it
	$(CARGO) test --release --locked -p tapline-filter -p tapline-jit --test it -- fpl passes graphs

test-tools:
	@bash scripts/test-tools.sh

# Compiled apart: the flag reaches every crate.
loom: export CARGO_TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)/loom
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --release --locked -p tapline-ring --lib

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked --features tapline-cli/parquet -- -D warnings
	$(CARGO) clippy -p tapline-flow -p tapline-graph --all-targets --locked -- -D warnings

bench:
	$(CARGO) build --release --locked --bins
	./target/release/tapline-bench $(BENCH)

libpcap:
	TAPLINE_PCAP_SONAME=$(SONAME) $(CARGO) build --release --locked -p tapline-capi
	rm -rf $(LIBPCAP) && mkdir -p $(LIBPCAP)/lib $(LIBPCAP)/include
	strip --strip-unneeded -o $(LIBPCAP)/lib/$(SONAME) $${CARGO_TARGET_DIR:-target}/release/libpcap.so
	ln -s $(SONAME) $(LIBPCAP)/lib/libpcap.so
	cp -R crates/capi/include/. $(LIBPCAP)/include
	@echo "LD_LIBRARY_PATH=$(CURDIR)/$(LIBPCAP)/lib tcpdump --version"

fuzz:
	@bash scripts/fuzz.sh $(SECONDS)
