#!/usr/bin/env bash
# Record the project's served runs again (traces/serve): vLLM's HTTP server on the CPU back end,
# with streaming clients on loopback and a real tokeniser trained on this machine's own text.
#
# Needs what record.sh needs. The rank computes on core 0; the API server, the engine core and
# the client share core 1. It takes some ten minutes.
#
#   PYTHON=.venv-engine/bin/python traces/record-serve.sh my-traces/serve
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

stop() { # folder of the server's recording: cut it into one run per load
  sleep 0.6 # the recorder flushes within 0.2 s
  kill "$server"
  wait "$server" || true
  "$python" -m kernelfit.record.cut "$1" --out "$out"
  gzip -9 -f "$out"/*/*.jsonl
  for run in "$out"/*/run.yaml; do # their steps check what was fitted elsewhere
    grep --quiet '^fit:' "$run" || echo 'fit: host' >>"$run"
  done
  rm -r "$1"
}

serve() { # model: start its server
  case $1 in
  kf-tiny) start "$raw/$1" "$1" --max-model-len 36000 --max-num-seqs 64 --max-num-batched-tokens 2048 ;;
  kf-gqa) start "$raw/$1" "$1" --max-model-len 4128 --max-num-seqs 64 --max-num-batched-tokens 1024 ;;
  esac
  # A server's first requests are slow; cutting leaves these out.
  send "$raw/$1" --seed 99 --requests 6 --concurrency 2 --prompt 1:64 --output 2:8
}

load() { # run: send its requests to its model's server
  local to=("$raw/${1%-*-*}" --name "$1")
  case $1 in
  # The host's costs: prompts of 1 to 30,000 tokens, answers of 1 to 4,000, 1 to 32 at a time.
  kf-tiny-host-*)
    send "${to[@]}" --seed 40 --requests 60 --concurrency 1 --prompt 1:30000 --output 1:16
    send "${to[@]}" --seed 41 --requests 24 --concurrency 1 --prompt 1:64 --output 1:1000
    send "${to[@]}" --seed 42 --requests 4 --concurrency 4 --prompt 16:64 --output 4000
    send "${to[@]}" --seed 43 --requests 60 --concurrency 8 --prompt 1:8000 --output 1:400
    send "${to[@]}" --seed 44 --requests 96 --concurrency 32 --prompt 1:1000 --output 1:400
    ;;
  kf-tiny-load-*)
    send "${to[@]}" --seed 50 --requests 300 --rate 6 --prompt 16:2000 --output 8:200 --shared 0.2
    ;;
  kf-gqa-light-*)
    send "${to[@]}" --seed 51 --requests 80 --rate 1 --prompt 16:256 --output 8:64 --shared 0.2
    ;;
  kf-gqa-busy-*)
    send "${to[@]}" --seed 52 --requests 350 --rate 5 --prompt 16:128 --output 8:64 --shared 0.2
    ;;
  kf-gqa-long-*)
    send "${to[@]}" --seed 53 --requests 36 --rate 0.4 --prompt 400:2000 --output 16:64
    ;;
  esac
}

prepare() { # folder
  out=$(mkdir -p "$1" && cd "$1" && pwd)
  raw=$out/.raw
  python=$(realpath -s "${PYTHON:-python3}")
  tokenizer=${TOKENIZER:-$raw/tokenizer}
  [ -d "$tokenizer" ] || "$python" -m kernelfit.record.tokenizer --out "$tokenizer"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  prepare "${1:?usage: record-serve.sh FOLDER}"
  # Two passes of the same loads, to know how well the machine repeats itself.
  serve kf-gqa
  for run in light-a busy-a long-a light-b busy-b long-b; do load "kf-gqa-$run"; done
  stop "$raw/kf-gqa"
  serve kf-tiny
  for run in host-a load-a load-b; do load "kf-tiny-$run"; done
  stop "$raw/kf-tiny"
  rm -r "$raw"
fi
