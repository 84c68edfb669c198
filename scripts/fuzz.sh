#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each.
set -euo pipefail
time="${1:-30s}"
go list ./... | while read -r pkg; do
  dir=$(go list -f '{{.Dir}}' "$pkg")
  grep -ohE '^func (Fuzz[A-Za-z0-9_]+)' "$dir"/*_test.go 2>/dev/null | awk '{print $2}' | while read -r target; do
    echo "== $pkg $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$pkg"
  done
done
