#!/usr/bin/env bash
# other-processors.sh COMMAND…: runs a command as older processors and other numbers of threads would.
# Matrix libraries pick their code by instruction set and split sums over threads, so float32 sums are rounded
# differently from machine to machine; no test may depend on it. Exits with 1 if any of the runs failed.
set -u
[ $# -gt 0 ] || { echo "usage: $0 COMMAND…" >&2; exit 2; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

try() {  # NAME [VARIABLE=VALUE…] -- COMMAND…
  local name=$1 settings=()
  shift
  while [ "$1" != -- ]; do settings+=("$1"); shift; done
  shift
  env ${settings[@]+"${settings[@]}"} "$@" >"$log" 2>&1
  local code=$?
  echo "$name: exit $code: $(tail -n 1 "$log")"
  [ $code -eq 0 ] && return
  failed=1
  grep -E '^(FAILED|ERROR|E  )' "$log" | head -n 20
}

try "as it is" -- "$@"
try "avx2" ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 -- "$@"
try "sse" ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE -- "$@"
try "one thread" OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 -- "$@"
try "two threads" OMP_NUM_THREADS=2 MKL_NUM_THREADS=2 -- "$@"
exit $failed
