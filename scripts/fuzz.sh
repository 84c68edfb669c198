#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each, one target on each core. With a second argument only the
# targets whose "package Name" matches that regular expression.
set -euo pipefail
cd "$(dirname "$0")/.."
export time="${1:-30s}" only="${2:-.}" bins corpus
bins=$(mktemp -d)
trap 'rm -rf "$bins"' EXIT
corpus="$(go env GOCACHE)/fuzz" # where go test -fuzz keeps what it finds interesting

one() { # PACKAGE DIR TARGET BINARY
  local out
  if out=$(cd "$2" && "$4" -test.run '^$' -test.fuzz "^$3\$" -test.fuzztime "$time" -test.parallel 1 \
    -test.fuzzcachedir "$corpus/$1" 2>&1); then
    echo "ok   $1 $3: $(grep -o 'execs: [0-9]*' <<< "$out" | tail -1)"
  elif grep -q 'context deadline exceeded' <<< "$out" && ! grep -q 'Failing input' <<< "$out"; then
    echo "ok   $1 $3: (go reports the end of the time as a failure now and then; a real one names its input)"
  else
    echo "FAIL $1 $3"
    echo "$out"
    sed -n 's/^ *Failing input written to //p' <<< "$out" | (cd "$2" && xargs -r tail -n +1) # a machine may be gone tomorrow
    return 1
  fi
}
export -f one

go list -f '{{.ImportPath}} {{.Dir}}' ./... | while read -r pkg dir; do
  targets=$(grep -ohE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2> /dev/null | awk '{print $2}' |
    while read -r target; do grep -E "$only" <<< "$pkg $target" || true; done || true)
  [ -n "$targets" ] || continue
  bin="$bins/${pkg//\//-}"
  go test -c -fuzz . -o "$bin" "$pkg"
  while read -r p target; do echo "$p $dir $target $bin"; done <<< "$targets"
done > "$bins/list"
wc -l < "$bins/list" | xargs echo "fuzz targets:"
xargs -P "$(nproc)" -L 1 bash -c 'one "$@"' one < "$bins/list"
