# The commands of this repository, one list for people and for CI. `make` alone shows it.

CARGO ?= cargo
# Options of the test programs, such as TEST_ARGS=--nocapture.
TEST_ARGS ?=
# For `make fuzz`: how long each target runs.
SECONDS ?= 30
# For `make bench`: what tapline-bench is asked for, such as `BENCH="file --size 256M"`.
BENCH ?= all

# For `make libpcap`: the name that programs ask for; libpcap.so.1 outside of Debian and its kin.
SONAME ?= libpcap.so.0.8
LIBPCAP = target/libpcap

# What the default build leaves out and tests can do without a broker.
OPTIONAL = --features tapline-cli/arrow,tapline-cli/parquet
# Crates with code for these features.
WITH_OPTIONAL = flow stages cli
# Crates that prove loads safe and compile filters: tested as the optimiser leaves them, too.
COMPILERS = bpf ir ebpf filter fpl filterset jit
optimised = $(foreach crate,$(COMPILERS),--config 'profile.test.package.tapline-$(crate).$(1)')

# What packages ship is built with this profile; `make deb PROFILE=release` is quicker.
PROFILE ?= dist
# `tapline-full` has these besides the default: they take as long to build as all others, and three megabytes.
FULL_FEATURES = --features tapline-cli/arrow,tapline-cli/$(KAFKA),tapline-cli/parquet
# TLS and passwords to Kafka are OpenSSL's, where its headers are: Debian's libssl-dev and pkg-config.
KAFKA = $(shell pkg-config --exists openssl && echo kafka-tls || echo kafka)
PACKAGES = target/packages
# The files of a release, and a program in the place of all builds.
RELEASE = target/release-files
PROGRAM ?=
# Another processor: `make deb TARGET=aarch64-unknown-linux-gnu` takes Debian's cross compiler of that name, and qemu-user, in which the
# program writes its manual.
TARGET ?=
BUILT = target/$(if $(TARGET),$(TARGET)/)$(PROFILE)
export MACHINE = $(firstword $(subst -, ,$(or $(TARGET),$(shell uname -m))))
MUSL = $(MACHINE)-unknown-linux-musl
ifneq ($(MACHINE),$(shell uname -m))
MUSL_CC = $(MACHINE)-linux-gnu-gcc
export RUNNER ?= qemu-$(MACHINE) -L /usr/$(MACHINE)-linux-gnu
cross = $(foreach target,$(1),CARGO_TARGET_$(shell echo $(target) | tr a-z- A-Z_)_LINKER=$(MACHINE)-linux-gnu-gcc \
	CC_$(subst -,_,$(target))=$(MACHINE)-linux-gnu-gcc)
# This compiler has the headers of glibc, in which `open` is `open64` for files above 2 GiB. In musl each file may be that long, by one name.
static: export LIBSQLITE3_FLAGS = -DSQLITE_DISABLE_LFS
endif
MUSL_CC ?= musl-gcc
# Two builds of one commit by one toolchain are equal byte by byte: no binary has paths of this machine, and seeds that the crate
# const-random would draw at compile time are made of this text. (Its one user is rhai, for names in scripts of the user's own.)
dist static: export CONST_RANDOM_SEED = tapline
REMAP = --remap-path-prefix=$(CURDIR)=/tapline --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo
# For `make test-static`.
TWICE = target/twice/one target/twice/the-other

.PHONY: help demo quick test test-all soak test-cluster test-optional test-configurations loom lint book bench fuzz libpcap
.PHONY: reference dist features package-trees deb rpm static release test-release test-demo test-packages test-static test-emulated $(TWICE)

help:
	@echo "make demo    build, send mixed traffic over a virtual link, capture, meter, record and find it, show it in a browser"
	@echo "make test    install what the tests need (as root on Debian) and run every test of the default build"
	@echo "make test-all  and those of the optional features, with the engines that read Parquet: 400 MB once"
	@echo "make soak    all tests at ten times the volume, and a thousand deaths in the ring"
	@echo "make test-cluster  Spark of two workers, batches into ClickHouse, and Kafka that is killed: 1.1 GB once, Java 17"
	@echo "make quick   the tests that need no root, no network and no other program, with fewer random cases"
	@echo "make lint    formatting, lints, licences and sources of dependencies, as CI demands them"
	@echo "make loom    run the shared ring's protocols in every order of steps that the memory model allows"
	@echo "make bench   compare with tcpdump and dumpcap on this machine: BENCH=\"file --size 256M\" for a part"
	@echo "make book    the documents as HTML in target/book"
	@echo "make reference  write docs/reference anew from the program: options, stages, elements, metrics"
	@echo "make libpcap libpcap.so and its headers in $(LIBPCAP), for programs that use libpcap; SONAME=libpcap.so.1"
	@echo "make deb     packages of Debian in $(PACKAGES); make rpm: of Fedora"
	@echo "make static  one file that needs no library, in target/static"
	@echo "make release  all of it for both processors, images, SBOM and checksums, in $(RELEASE); PROGRAM=FILE tries the packaging alone"
	@echo "make test-release  from these files to the page in a bare Debian: commands and seconds (root, mmdebstrap)"
	@echo "make test-static  the same file built in two folders, compared"
	@echo "make test-packages  install, upgrade, run and purge the packages in a Debian of their own (root)"
	@echo "make test-demo  the demonstration in a bare Debian, without ip, ethtool and tcpdump (root, mmdebstrap)"
	@echo "make test-emulated TARGET=aarch64-unknown-linux-gnu  unit tests of another processor in qemu-user"
	@echo "make fuzz    run each fuzz target for SECONDS=$(SECONDS)"

demo:
	@bash scripts/demo.sh

test:
	@TEST_TOOLS=1 bash scripts/test.sh -- $(TEST_ARGS)

# Tests that want root, a network, other programs or real captures say `skipped` and pass.
quick:
	@TAPLINE_QUICK=1 bash scripts/test.sh files it unit -- $(TEST_ARGS)

test-all: test
	@$(MAKE) --no-print-directory test-optional

# Only tests whose names say that they concern these features.
test-optional:
	@bash scripts/test-tools.sh parquet
	$(CARGO) test --locked $(addprefix -p tapline-,$(WITH_OPTIONAL)) $(OPTIONAL) --lib --test it --test files -- \
		arrow parquet batches flowlog table:: export:: $(TEST_ARGS)

soak: export TAPLINE_VOLUME ?= 10
soak: export TAPLINE_EVERY_CAPTURE ?= 1
soak: export TAPLINE_RING_DEATHS ?= 1000
soak: export TEST_SILENCE ?= 3000
soak: test-all test-configurations

# With other programs' clusters, started here: minutes, and not part of `make test`.
test-cluster:
	@bash scripts/test-tools.sh cluster
	$(CARGO) build --locked $(FULL_FEATURES) --bin tapline
	$(CARGO) test --locked -p tapline-export --features $(KAFKA) --lib kafka
	$(CARGO) clippy --locked -p tapline-export --features $(KAFKA) --all-targets -- -D warnings
	$(CARGO) check --locked --manifest-path contrib/clickhouse/bench/Cargo.toml
	python3 contrib/kafka/tests/broker.py
	python3 contrib/kafka/tests/packets.py
	python3 contrib/kafka/tests/secure.py
	python3 contrib/spark/tests/cluster.py
	$(CARGO) test --locked $(OPTIONAL) -p tapline-cli --test files batches::

# Other configurations: a build without optional parts says so, and the crates that make code, as a release has them. Their
# random cases are four times those of `make test`, which is not optimised.
test-configurations: export TAPLINE_VOLUME ?= 4
test-configurations:
	$(CARGO) test --locked -p tapline-stages --lib without_the_feature
	RUST_MIN_STACK=2097152 $(CARGO) test --locked $(call optimised,opt-level=3) $(call optimised,debug-assertions=false) \
		$(call optimised,overflow-checks=false) $(addprefix -p tapline-,$(COMPILERS)) --lib --test it
	@# Types of the C library differ: `make static` is not for each change, but this is.
	@if rustc --print target-libdir --target $(MUSL) | xargs test -d || rustup target add $(MUSL); then \
		$(CARGO) check --locked --target $(MUSL) -p tapline-sys -p tapline-ring; \
	else \
		echo "skipped: musl: rustup target add $(MUSL)"; \
	fi

# Compiled apart: the flag reaches every crate.
loom: export CARGO_TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)/loom
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --release --locked -p tapline-ring --lib

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked $(OPTIONAL) -- -D warnings
	@if command -v cargo-deny >/dev/null; then \
		$(CARGO) deny --all-features check licenses bans sources; \
	else \
		echo "skipped: licences, bans and sources: cargo install --locked cargo-deny"; \
	fi

# Pages of the documents that are made of the command line and of the catalog of stages.
reference:
	TAPLINE_WRITE_REFERENCE=1 $(CARGO) test --locked -p tapline-cli --bin tapline reference::

book:
	@command -v mdbook >/dev/null || test -x target/tools/bin/mdbook || $(CARGO) install --locked --root target/tools mdbook
	PATH="$$PATH:$(CURDIR)/target/tools/bin" mdbook build

bench:
	$(CARGO) build --release --locked --bins
	./target/release/tapline-bench $(BENCH)

libpcap:
	$(call cross,$(TARGET)) TAPLINE_PCAP_SONAME=$(SONAME) $(CARGO) build --release --locked -p tapline-capi
	rm -rf $(LIBPCAP) && mkdir -p $(LIBPCAP)/lib $(LIBPCAP)/include
	strip --strip-unneeded -o $(LIBPCAP)/lib/$(SONAME) $${CARGO_TARGET_DIR:-target}/release/libpcap.so
	ln -s $(SONAME) $(LIBPCAP)/lib/libpcap.so
	cp -R crates/programs/capi/include/. $(LIBPCAP)/include
	@echo "LD_LIBRARY_PATH=$(CURDIR)/$(LIBPCAP)/lib tcpdump --version"

fuzz:
	@bash scripts/fuzz.sh $(SECONDS)

dist: export RUSTFLAGS = $(REMAP)
dist: export CFLAGS = -ffile-prefix-map=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo
dist:
	@# The C library of Kafka is built for this machine alone.
	@test -n "$(TARGET)" -o $(KAFKA) = kafka-tls || echo "tapline-full will have no TLS to Kafka: apt-get install libssl-dev pkg-config"
	$(if $(TARGET),,$(CARGO) build --profile $(PROFILE) --locked $(FULL_FEATURES) -p tapline-cli && cp $(BUILT)/tapline $(BUILT)/tapline-full)
	$(call cross,$(TARGET)) TAPLINE_PCAP_SONAME=$(SONAME) $(CARGO) build --profile $(PROFILE) --locked $(if $(TARGET),--target $(TARGET)) -p tapline-cli -p tapline-capi

features:
	@echo $(lastword $(FULL_FEATURES))

package-trees: dist
	@bash scripts/package-trees.sh $(BUILT)/tapline $(BUILT)/libpcap.so target/package-trees $(if $(TARGET),,$(BUILT)/tapline-full)

deb: package-trees
	@bash scripts/package-deb.sh target/package-trees $(PACKAGES)

rpm: package-trees
	@bash scripts/package-rpm.sh target/package-trees $(PACKAGES)

static: export RUSTFLAGS = $(REMAP) -C target-feature=+crt-static
static: export CFLAGS = -ffile-prefix-map=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo
static:
	@rustc --print target-libdir --target $(MUSL) | xargs test -d || rustup target add $(MUSL)
	$(call cross,$(MUSL)) CC_$(subst -,_,$(MUSL))=$(MUSL_CC) $(CARGO) build --profile $(PROFILE) --locked --target $(MUSL) -p tapline-cli
	install -D -m 755 target/$(MUSL)/$(PROFILE)/tapline target/static/tapline
	@bash scripts/licences.sh $(MUSL) >target/static/copyright
	@sha256sum target/static/tapline

release:
	@bash scripts/release.sh $(RELEASE) $(PROGRAM)

test-release:
	@bash scripts/test-release.sh $(RELEASE)

# What is committed, built in two folders whose paths differ in length: the files are equal. `make -j2 test-static` builds
# both at once.
$(TWICE):
	rm -rf $@ && git clone --quiet . $@
	$(MAKE) -C $@ static
test-static: $(TWICE)
	cmp $(TWICE:%=%/target/static/tapline)

# Unit tests of another processor, in qemu-user: those that ask no more of the kernel than qemu passes on.
EMULATED = $(COMPILERS) packet file ring syntax wire flow search store stream rules cells
test-emulated:
	@test -n '$(TARGET)' || { echo 'of which processor? make $@ TARGET=aarch64-unknown-linux-gnu' >&2; exit 2; }
	$(call cross,$(TARGET)) CARGO_TARGET_$(shell echo $(TARGET) | tr a-z- A-Z_)_RUNNER="$(RUNNER)" \
		$(CARGO) test --locked --target $(TARGET) $(addprefix -p tapline-,$(EMULATED)) --lib -- $(TEST_ARGS)

# The demonstration on a machine that has nothing: ip, ethtool and tcpdump are not needed.
test-demo:
	@bash scripts/test-demo.sh

test-packages: deb
	@bash scripts/test-tools.sh packages
	@bash scripts/check-examples.sh
	@bash scripts/test-packages.sh $(PACKAGES)
