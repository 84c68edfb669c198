# Everything a contributor needs. `make run` and `make test` are all the set-up there is: both work on a fresh machine
# with Go 1.26 and nothing else.

GO       ?= go
BIN      := bin
PKGS     ?= ./...
LINT     := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
NATS_CLI := github.com/nats-io/natscli/nats@v0.5.0

# With RETRY=1 a test that fails is played once more and named in the summary; a data race never is. For CI, whose machine
# is shared and where tests compare two servers by the clock: a test that turns up there is to be made sure of.
ifdef RETRY
gotest = $(GO) run gotest.tools/gotestsum@v1.13.0 --format standard-quiet --rerun-fails=$(RETRY) \
	--rerun-fails-max-failures=4 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race --packages="$(PKGS)" -- $(1)
else
gotest = $(GO) test $(1) $(PKGS)
endif

.PHONY: run build test race slow lint fmt fuzz bench bench-scale conformance demo tools clean

## run: a gateway with its embedded log on :4222 (monitoring on :8222, data in ./data); RUNFLAGS adds flags
run: build
	@exec $(BIN)/ehdb-gateway -js -sd ./data -m 8222 -c examples/run.conf $(RUNFLAGS)

## build: the server and ehdbctl in bin/
build:
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/ehdb-gateway ./cmd/ehdb-gateway
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/ehdbctl ./cmd/ehdbctl

## tools: the real nats CLI in bin/, for the tour and the end-to-end tests
tools: $(BIN)/nats
$(BIN)/nats:
	mkdir -p $(BIN)
	GOBIN=$(CURDIR)/$(BIN) $(GO) install $(NATS_CLI)

## test: all tests but the slow suites; under ten minutes on two cores. What runs beside others mostly waits: four at a time
test: tools
	$(GO) vet $(PKGS)
	$(call gotest,-shuffle=on -parallel 4 -timeout 25m)

## race: the same under the race detector
race: tools
	$(call gotest,-race -shuffle=on -timeout 25m)

## slow: the long suites (crash rounds, long model runs)
slow: tools
	EHDB_SLOW=1 $(GO) test -timeout 60m $(PKGS)

## lint: golangci-lint with .golangci.yml
lint:
	$(LINT) run $(PKGS)

fmt:
	$(LINT) fmt $(PKGS)

## fuzz: each fuzz target for FUZZTIME, one on each core
FUZZTIME ?= 30s
fuzz:
	scripts/fuzz.sh $(FUZZTIME)

## bench: side by side with nats-server, in alternation; writes bench/results.json and bench/results.svg
bench:
	$(GO) run ./scripts/bench $(BENCHFLAGS)

## bench-scale: many stored messages, beside nats-server: start after SIGKILL, memory, lookups, purge; -msgs in SCALEFLAGS
bench-scale: build
	GOBIN=$(CURDIR)/bin $(GO) install github.com/nats-io/nats-server/v2@v2.15.2
	$(GO) run ./scripts/bench-scale -gateway bin/ehdb-gateway -nats bin/nats-server $(SCALEFLAGS)

## conformance: the official nats.go suites against our binary (CONFORMANCE_DIR: where the harness is)
CONFORMANCE_DIR ?= ../shared/conformance
conformance: build
	@test -x $(CONFORMANCE_DIR)/run || { echo "the conformance harness is not at $(CONFORMANCE_DIR): set CONFORMANCE_DIR"; exit 1; }
	$(CONFORMANCE_DIR)/run $(CURDIR)/$(BIN)/ehdb-gateway $(CURDIR)/$(BIN)/conformance.json $(CONFORMANCEFLAGS)

## demo: the cutover from a live nats-server, end to end, with the accounting of every message; flags in DEMOFLAGS
demo: build
	GOBIN=$(CURDIR)/bin $(GO) install github.com/nats-io/nats-server/v2@v2.15.2
	$(GO) run ./scripts/demo -gateway bin/ehdb-gateway -nats bin/nats-server $(DEMOFLAGS)

clean:
	rm -rf $(BIN)
