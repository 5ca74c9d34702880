#!/usr/bin/env bash
# Record the project's served runs again (traces/serve): vLLM's HTTP server on the CPU back end,
# with streaming clients on loopback and a real tokeniser trained on this machine's own text.
#
# Needs what record.sh needs. The rank computes on core 0; the API server, the engine core and
# the client share core 1. A run takes one to three minutes and the server's start.
#
#   PYTHON=.venv-engine/bin/python traces/record-serve.sh my-traces [RUN...]
set -euo pipefail

models=$(cd "$(dirname "${BASH_SOURCE[0]}")/models" && pwd)
port=${PORT:-8917}

start() { # folder, model, options of the server
  local folder=$1 model=$2
  shift 2
  mkdir -p "$folder"
  cd "$models"
  KERNELFIT_TRACE_DIR=$folder KERNELFIT_SPEED_PROBE=1 VLLM_CPU_KVCACHE_SPACE=4 \
    VLLM_CPU_OMP_THREADS_BIND=0 LD_PRELOAD=${TCMALLOC:-libtcmalloc_minimal.so.4} \
    taskset -c 1 "$python" -m vllm.entrypoints.openai.api_server --model "$model" \
    --tokenizer "$tokenizer" --port "$port" --load-format dummy --dtype float32 --enforce-eager \
    --enable-prompt-tokens-details "$@" >"$folder/server.log" 2>&1 &
  server=$!
  until curl --silent --output /dev/null "localhost:$port/v1/models"; do
    kill -0 "$server" || { tail "$folder/server.log"; return 1; }
    sleep 1
  done
}

send() { # folder, options of the load
  local folder=$1
  shift
  taskset -c 1 "$python" -m kernelfit.record.load --port "$port" --out "$folder" "$@"
}

warm() { # a server's first requests are slow; the client does not count them
  send "$(mktemp -d)" --seed 99 --requests 6 --concurrency 2 --prompt 1:64 --output 2:8
}

stop() { # folder
  sleep 0.6 # the recorder flushes within 0.2 s
  kill "$server"
  wait "$server" || true
  rm -f "$1/server.log"
  gzip -9 -f "$1"/*.jsonl
}

serve() { # run: start its server
  case $1 in
  kf-tiny-*)
    start "$out/$1" kf-tiny --max-model-len 36000 --max-num-seqs 64 --max-num-batched-tokens 2048
    ;;
  kf-gqa-*)
    start "$out/$1" kf-gqa --max-model-len 4128 --max-num-seqs 64 --max-num-batched-tokens 1024
    ;;
  esac
}

load() { # run: send its requests
  warm
  case $1 in
  # The host's costs: prompts of 1 to 30,000 tokens, answers of 1 to 4,000, 1 to 32 at a time.
  kf-tiny-host-*)
    send "$out/$1" --seed 40 --requests 40 --concurrency 1 --prompt 1:30000 --output 1:16
    send "$out/$1" --seed 41 --requests 12 --concurrency 1 --prompt 1:64 --output 1:1000
    send "$out/$1" --seed 42 --requests 4 --concurrency 4 --prompt 16:64 --output 4000
    send "$out/$1" --seed 43 --requests 40 --concurrency 8 --prompt 1:8000 --output 1:400
    send "$out/$1" --seed 44 --requests 96 --concurrency 32 --prompt 1:1000 --output 1:400
    ;;
  kf-tiny-load-*)
    send "$out/$1" --seed 50 --requests 300 --rate 6 --prompt 16:2000 --output 8:200 --shared 0.2
    ;;
  kf-gqa-light-*)
    send "$out/$1" --seed 51 --requests 80 --rate 1 --prompt 16:256 --output 8:64 --shared 0.2
    ;;
  kf-gqa-busy-*)
    send "$out/$1" --seed 52 --requests 420 --rate 5 --prompt 16:128 --output 8:64 --shared 0.2
    ;;
  kf-gqa-long-*)
    send "$out/$1" --seed 53 --requests 40 --rate 0.4 --prompt 400:2000 --output 16:64
    ;;
  esac
}

# Two passes of the same loads, to know how well the machine repeats itself.
runs=(kf-tiny-host-a kf-tiny-load-a kf-gqa-light-a kf-gqa-busy-a kf-gqa-long-a
  kf-tiny-load-b kf-gqa-light-b kf-gqa-busy-b kf-gqa-long-b)

prepare() { # folder
  out=$(mkdir -p "$1" && cd "$1" && pwd)
  python=$(realpath -s "${PYTHON:-python3}")
  tokenizer=${TOKENIZER:-$out/tokenizer}
  [ -d "$tokenizer" ] || "$python" -m kernelfit.record.tokenizer --out "$tokenizer"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  prepare "${1:?usage: record-serve.sh FOLDER [RUN...]}"
  shift
  for run in "${@:-${runs[@]}}"; do
    serve "$run"
    load "$run"
    stop "$out/$run"
  done
fi
