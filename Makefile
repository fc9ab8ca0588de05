# Needs Go, git and coreutils; `make test` gets a C compiler for the race detector by itself where it may.
# The first build compiles the SQLite and Agents API libraries: about 1 minute on two cores, about 4 for `make test`.

GO      ?= go
BIN     ?= bin

# What `bridge version` and the User-Agent say. An image build has no .git and hands both in.
VERSION ?= $(or $(shell git describe --tags --match 'v*' --dirty 2>/dev/null),dev)
COMMIT  ?= $(or $(shell git rev-parse --short=12 HEAD 2>/dev/null),unknown)
LDFLAGS  = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# One pinned linter for everybody, outside go.mod, so that its dependencies never touch ours.
LINT_VERSION = v2.15.0
LINT         = $(CURDIR)/$(BIN)/golangci-lint-$(LINT_VERSION)

TEST_TIMEOUT ?= 15m
FUZZTIME     ?= 10s

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

##@ Use

.PHONY: demo
demo: build ## play a scripted conversation against a simulated Agents API, with no key and no network
	./$(BIN)/bridge demo

.PHONY: build
build: ## build the static binary bin/bridge
	@mkdir -p $(BIN)
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)/bridge ./cmd/bridge

##@ Verify

.PHONY: test
test: cc strace ## run every test under the race detector (TESTFLAGS adds flags; about 4 minutes the first time)
	@echo 'go test -race: the first run compiles every dependency for the race detector, which takes minutes without output'
	CGO_ENABLED=1 $(GO) test -race -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

.PHONY: check
check: tidy vet lint routes ## run the linters, vet, the format, go.mod and route table checks

.PHONY: bench
bench: ## measure the bridge against a bare loop and the SDK's helper (BENCHFLAGS adds flags, -h lists them; about 10 minutes)
	@$(GO) run ./internal/bench $(BENCHFLAGS)

.PHONY: chaos
chaos: build ## kill, freeze and cut off the bridge under load, and count what came of it (CHAOSFLAGS adds flags; about 4 minutes)
	$(GO) run ./internal/chaos -bridge $(BIN)/bridge $(CHAOSFLAGS)

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (10s)
	GO='$(GO)' bash scripts/fuzz.sh $(FUZZTIME)

.PHONY: image-check
image-check: ## check what can be checked of the image without a container engine
	GO='$(GO)' bash scripts/check-image.sh

##@ Change

.PHONY: fmt
fmt: $(LINT) ## format the code (gofumpt, goimports)
	$(LINT) fmt

.PHONY: clean
clean: ## remove what was built here
	rm -rf $(BIN)

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":[^#]*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# The parts of `make check`, each runnable alone.

.PHONY: tidy vet lint routes
tidy:
	$(GO) mod tidy -diff

vet:
	$(GO) vet ./...

lint: $(LINT)
	$(LINT) config verify
	$(LINT) run ./...

routes: build
	./$(BIN)/bridge check routes.yaml

# The race detector links through a C compiler.
.PHONY: cc
cc:
	@bash scripts/ensure-cc.sh "$$($(GO) env CC)"

.PHONY: strace
strace:
	@bash scripts/ensure-strace.sh

# The version is in the name: a new pin is a new file, and an old one is never taken for it.
$(LINT):
	@echo 'installing golangci-lint $(LINT_VERSION): about 2 minutes the first time'
	GOBIN='$(CURDIR)/$(BIN)' $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv '$(CURDIR)/$(BIN)/golangci-lint' $@
