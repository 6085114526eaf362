# Podvisor's targets. `make demo` and `make test` install what they need, build, run, and print their stages with their times.
# Set PODVISOR_CACHE to move the caches (kernel, node) and CARGO_TARGET_DIR to move cargo's output.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

export PODVISOR_CACHE ?= $(HOME)/.cache/podvisor
export CARGO_TARGET_DIR ?= $(CURDIR)/target

BIN := $(CARGO_TARGET_DIR)/release
IMAGE := $(CURDIR)/target/guest-image
NODE := tests/node/run

# `make install` puts everything below PREFIX but the configuration, which the daemon reads from /etc.
PREFIX ?= /usr
DESTDIR ?=
# Where zsh looks besides; Debian's looks elsewhere (dist/debian/build).
ZSH_COMPLETIONS ?= $(PREFIX)/share/zsh/site-functions

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1|/' | column -t -s '|'

.PHONY: deps
deps: ## install the Debian packages that building and testing need, container runtimes among them (root; else names them)
	@.ci/stage --clear
	@.ci/stage deps tests/deps

.PHONY: build-deps
build-deps: ## install only the packages that building needs (root; else names them)
	@.ci/stage --clear
	@.ci/stage deps tests/deps --build

.PHONY: build guest-image
guest-image: build
build: build-deps ## build the daemon, the VMM, the agent, and what a VM boots from: kernel, root image, scratch template
	@.ci/build

.PHONY: full-kernel
full-kernel: build-deps ## build the full guest kernel, for handlers with `kernel = "full"`; install and the packages take it where it is
	@.ci/stage full-kernel guest-image/build full-kernel >/dev/null

# The units and the configuration have the paths of PREFIX=/usr; with another the installed copies are changed. A configuration that is
# there already stays as it is.
.PHONY: install
install: ## install what `make build` has built, as root or with DESTDIR=; PREFIX=/usr is where the daemon looks by default
	install -D -m 755 -t '$(DESTDIR)$(PREFIX)/bin' $(BIN)/podvisor $(BIN)/podvisor-vmm
	install -D -m 644 -t '$(DESTDIR)$(PREFIX)/lib/podvisor' $(IMAGE)/vmlinux $(wildcard $(IMAGE)/vmlinux-full) $(IMAGE)/root.erofs $(IMAGE)/scratch.ext4 $(IMAGE)/volume.ext4
	cd '$(DESTDIR)$(PREFIX)/lib/podvisor' && sha256sum *.ext4 root.erofs vmlinux* >SHA256SUMS.new && chmod 644 SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS
	install -D -m 644 -t '$(DESTDIR)$(PREFIX)/share/podvisor' dist/runtimeclass.yaml
	install -D -m 644 -t '$(DESTDIR)$(PREFIX)/share/podvisor/monitoring' dist/monitoring/podvisor.json dist/monitoring/alerts.yaml
	install -D -m 644 -t '$(DESTDIR)$(PREFIX)/lib/systemd/system' dist/podvisor.service dist/podvisor-device-plugin.service
	$(BIN)/podvisor man --to '$(DESTDIR)$(PREFIX)/share/man'
	install -d '$(DESTDIR)$(PREFIX)/share/bash-completion/completions' '$(DESTDIR)$(ZSH_COMPLETIONS)' '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d'
	$(BIN)/podvisor completions bash >'$(DESTDIR)$(PREFIX)/share/bash-completion/completions/podvisor'
	$(BIN)/podvisor completions zsh >'$(DESTDIR)$(ZSH_COMPLETIONS)/_podvisor'
	$(BIN)/podvisor completions fish >'$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/podvisor.fish'
	[ '$(PREFIX)' = /usr ] || sed -i 's|^ExecStart=/usr/|ExecStart=$(PREFIX)/|' '$(DESTDIR)$(PREFIX)/lib/systemd/system/podvisor.service' \
	  '$(DESTDIR)$(PREFIX)/lib/systemd/system/podvisor-device-plugin.service'
	[ -e '$(DESTDIR)/etc/podvisor/config.toml' ] || { \
	  install -D -m 644 -t '$(DESTDIR)/etc/podvisor' dist/config.toml && \
	  { [ '$(PREFIX)' = /usr ] || printf '\n# This installation is below $(PREFIX).\n[paths]\nguest_image = "$(PREFIX)/lib/podvisor"\n' >>'$(DESTDIR)/etc/podvisor/config.toml'; }; }

.PHONY: deb
deb: build full-kernel ## a Debian package of all that, target/podvisor_VERSION_ARCHITECTURE.deb
	@.ci/stage --last deb dist/debian/build

.PHONY: rpm
rpm: build full-kernel ## an RPM package of all that, target/podvisor-VERSION-1.ARCHITECTURE.rpm; needs rpmbuild
	@.ci/stage --last rpm dist/rpm/build

.PHONY: node-image
node-image: build full-kernel ## an OCI image that installs all that on a cluster's nodes, target/podvisor-node_VERSION_ARCHITECTURE.tar
	@.ci/stage --last node-image dist/oci/build

.PHONY: tarball
tarball: build full-kernel ## a tar file of all that, target/podvisor-VERSION-ARCHITECTURE.tar.gz, for `podvisor node install --from`
	@.ci/stage --last tarball dist/tar/build

.PHONY: chart
chart: ## a Helm chart that installs the node-image on a cluster, target/podvisor-chart-VERSION.tgz
	@.ci/stage --last chart dist/helm/build

.PHONY: release
release: ## deb, rpm, tarball, node-image and chart with signed digests and bills of materials: SIGN_KEY=path of a private key (PEM, Ed25519)
	@[ -f '$(SIGN_KEY)' ] || { echo 'make release: SIGN_KEY is missing: the path of a private key' >&2; exit 2; }
	@$(MAKE) --no-print-directory deb
	@$(MAKE) --no-print-directory rpm
	@$(MAKE) --no-print-directory tarball
	@$(MAKE) --no-print-directory node-image
	@$(MAKE) --no-print-directory chart

.PHONY: e2e-build
e2e-build: deps
	@.ci/build -p tests-e2e --bins

.PHONY: demo
demo: e2e-build ## a pod of two containers in its own VM, from an image out of a local registry
	@.ci/stage --last demo $(NODE) $(BIN)/demo --bin $(BIN) --guest-image $(IMAGE)

.PHONY: check
check: deps ## formatting, lints and the repository's own rules; advisories where cargo-deny is installed
	.ci/stage lints cargo fmt --check
	.ci/stage lints cargo clippy --workspace --all-targets -- -D warnings
	.ci/stage lints cargo fmt --check --all --manifest-path tests/fuzz/Cargo.toml
	.ci/stage lints cargo clippy --locked --workspace --manifest-path tests/fuzz/Cargo.toml -- -D warnings
	.ci/stage lints .ci/deny

# Behind the build, whose crates of others it takes.
.PHONY: previous
previous: e2e-build
	@.ci/stage previous tests/previous/build >/dev/null

# FULL_KERNEL=changed-full-kernel leaves it out where it is neither built nor changed since it passed its tests.
FULL_KERNEL ?= full-kernel
.PHONY: test-build
test-build: deps
	@.ci/build --for-tests '$(FULL_KERNEL)' -p tests-e2e -p tests-parity -p tests-red-team --bins

.PHONY: test-programs
test-programs: check
	@.ci/stage tests-build cargo test --quiet --no-run --workspace

# Two builds side by side, of about the same size: the last crates of each leave one processor without work. Cargo has a lock for each
# profile, so that neither waits for the other.
.PHONY: test
test: ## every test: lints, unit, VMM on bare KVM, image against the kernel, e2e in the node
	@$(MAKE) --no-print-directory --jobs=2 test-programs test-build
	@.ci/stage --last tests tests/run

# Programs as `cargo test` builds them: unoptimized and incremental, where cargo test has its own.
.PHONY: try
try: deps ## the end-to-end tests whose names contain FILTER, with programs that build fast: after a changed line
	@[ -n '$(FILTER)' ] || { echo 'make try: FILTER is missing: a part of the name of a test' >&2; exit 2; }
	@.ci/build-try
	@PODVISOR_E2E_BIN='$(CARGO_TARGET_DIR)/debug' PODVISOR_E2E_GUEST_IMAGE='$(CURDIR)/target/try-image' .ci/stage --last tests tests/run $(FILTER)

.PHONY: test-repeat
test-repeat: previous ## end-to-end tests TIMES times in loaded nodes, to find those that race: FILTER=names
	@[ -n '$(TIMES)' ] || { echo 'make test-repeat: TIMES is missing' >&2; exit 2; }
	@.ci/stage --last tests tests/run --times '$(TIMES)' $(FILTER)

# What writes in the guest is static, as the agent is.
.PHONY: bench-build
bench-build: deps
	@.ci/build -p tests-e2e -p tests-bench --bins
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static" \
	  cargo build --profile agent -p tests-bench-writer --target x86_64-unknown-linux-gnu

.PHONY: bench
bench: bench-build ## count instructions to agent-ready and of a pod's start; ratios of exec and of its output
	tests/bench/run

.PHONY: bench-loop
bench-loop: deps ## seconds until a changed line is compiled and tested: in three crates, and in one end-to-end test
	@tests/bench/loop

.PHONY: bench-images
bench-images: deps ## ten images over one base: disk, pulls, and memory while twenty pods read them, over their distinct layers
	@.ci/build -p tests-e2e -p tests-bench --bins
	$(NODE) $(BIN)/bench-images --bin $(BIN) --guest-image $(IMAGE)

.PHONY: bench-pull
bench-pull: deps ## a large image's pull over containerd's and over skopeo's with umoci's unpacking (root; both programs installed; no VM)
	@.ci/build -p tests-e2e -p tests-bench --bins
	$(BIN)/bench-pull --bin $(BIN) --guest-image $(IMAGE)

.PHONY: bench-crowd
bench-crowd: deps ## 500 pods in a row, 20 at once, 60 present, a restart beside 50: ratios, the daemon's memory (an hour)
	@.ci/build -p tests-e2e -p tests-bench --bins
	$(NODE) $(BIN)/bench-crowd --bin $(BIN) --guest-image $(IMAGE)

.PHONY: bench-density
bench-density: deps ## memory of pods that do nothing, and after one has touched and freed 64 MiB; wake-ups of each
	@.ci/build -p tests-e2e -p tests-bench --bins
	$(NODE) $(BIN)/bench-density --bin $(BIN) --guest-image $(IMAGE)

# Firecracker is given: nothing here builds it.
.PHONY: bench-lineup
bench-lineup: deps ## a pod's start beside KVM alone, runc, crun and Firecracker (FIRECRACKER=path), alone, 20 at once, beside 60 (an hour)
	@.ci/build -p tests-e2e -p tests-bench -p tests-floor --bins
	PODVISOR_NODE_MEMORY=8192 $(NODE) --icount $(BIN)/bench-lineup --bin $(BIN) --guest-image $(IMAGE) --floor $(BIN)/tests-floor \
	  $(if $(FIRECRACKER),--firecracker '$(FIRECRACKER)')

.PHONY: reproducible
reproducible: deps ## build what ships in two directories and compare the bytes: PARTS="vmm agent daemon image kernel" (an hour for all)
	tests/reproducible/run $(PARTS)

.PHONY: fuzz
fuzz: deps ## a minute of fuzzing for each parser of what strangers send, and for the VMM's devices
	tests/fuzz/run

.PHONY: load
load: e2e-build ## streams under load: 256 MB out, 64 MB in, 100 commands that end at once (many minutes in a software node)
	PODVISOR_E2E_LOAD=full tests/run stream_ megabytes

.PHONY: soak
soak: parity-build ## the same for hours: 10 GB out, 1 GB in, 5,000 commands, ten minutes of silence; half an hour of random work; 200 random images; every step of a call, killed; 1,000 random containers here and with runc; 20 minutes of fuzzing for each target of the VMM's devices; an hour of parallel guests
	PODVISOR_IMAGE_SEEDS=200 cargo test -p runtime-image --test image -- --nocapture random:: large::
	PODVISOR_E2E_LOAD=soak PODVISOR_IMAGE_SEEDS=200 tests/run stream_ megabytes random_work random_images steps::
	$(PARITY) --no-table --generated 1000 --seed $$(date +%s)
	PODVISOR_FUZZ_SECONDS=1200 tests/fuzz/run virtio_devices fs_share vsock_mux
	PODVISOR_PARALLEL_SECONDS=3600 PODVISOR_PARALLEL_SEED=$$(date +%s) cargo test -p vmm-vm parallel:: -- --nocapture

.PHONY: conformance-build
conformance-build: deps
	@.ci/build -p tests-conformance --bins

.PHONY: conformance
conformance: conformance-build ## the CRI conformance suite: CRITEST=path of a critest, FOCUS=regular expression
	@tests/conformance/run "$(CRITEST)" $(if $(FOCUS),'$(FOCUS)')

PARITY = $(NODE) $(BIN)/parity --bin $(BIN) --guest-image $(IMAGE) $(if $(CONTAINERD),--containerd '$(CONTAINERD)')
.PHONY: parity-build
parity-build: deps
	@.ci/build -p tests-e2e -p tests-parity --bins

.PHONY: parity
parity: parity-build ## the same calls to a VM handler and to containerd with runc, compared: CONTAINERD=path (else Debian's), CASES=names (all)
	@.ci/stage --last parity $(PARITY) $(CASES)

.PHONY: red-team-build
red-team-build: deps
	@.ci/build -p tests-red-team --bins

.PHONY: red-team
red-team: red-team-build ## escapes tried from a VMM's thread and its share's: without walls, with each alone, with all (tests/red-team)
	@.ci/stage --last red-team $(NODE) $(BIN)/red-team --bin $(BIN)

.PHONY: kubelet
kubelet: conformance-build ## a real kubelet with static pods: KUBELET=path of a kubelet (1.36)
	@tests/kubelet/run "$(KUBELET)"

.PHONY: clients
clients: conformance-build ## crictl, or kubectl through a real kubelet, at the streams: CLIENT="crictl PATH" or as tests/clients/run says
	@tests/clients/run $(CLIENT)

.PHONY: policies
policies: ## the manifests of dist/kubernetes in an API server: CLIENT="KUBECTL KUBE_APISERVER ETCD", as paths
	@tests/clients/run policies $(CLIENT)

# The programs of Kubernetes 1.36, and a containerd 2.x with its shim where there is one, are given: nothing here builds them.
.PHONY: cluster-build
cluster-build: deps
	@.ci/build -p tests-conformance -p tests-cluster --bins

.PHONY: cluster
cluster: cluster-build ## a one-node cluster, rebooted: BINARIES=directory of its programs (tests/cluster/run says which), CHECKS=names
	@CHECKS="$(CHECKS)" tests/cluster/run "$(BINARIES)"

.PHONY: book
book: ## the pages of docs as a book with a search, in target/book; installs mdBook into the cache where there is none (minutes)
	@.ci/book

.PHONY: clean
clean: ## remove what was built here; caches outside the checkout stay
	cargo clean
	rm -rf target/guest-image
