#!/usr/bin/env bash
# Many runs on one GPU: `experiments/block.sh FILE [AT_ONCE]`, where each line of FILE is the arguments of one
# `python -m experiments.chain`. Run it again to resume what was stopped. Line N of FILE.txt logs to FILE-N.log.
set -euo pipefail
lines=$1
at_once=${2:-6}

if command -v nvidia-cuda-mps-control >/dev/null; then
  nvidia-cuda-mps-control -d 2>/dev/null || true # runs already
fi
share=per_process_memory_fraction:$(awk "BEGIN {print 0.95 / $at_once}")
if PYTORCH_CUDA_ALLOC_CONF=$share python -c 'import torch; torch.zeros(1).cuda()' 2>/dev/null; then
  export PYTORCH_CUDA_ALLOC_CONF=$share
else
  echo "no limit on each run's memory: this torch has none, or there is no GPU" >&2
fi

name=$(basename "$lines" .txt)
export name
# a blank at the end of a line would join the next one to it
grep -nvE '^[[:space:]]*(#|$)' "$lines" | sed -E 's/^([0-9]+):/\1 /; s/[[:space:]]+$//' |
  xargs -P "$at_once" -L 1 sh -c '
    n=$1; shift
    python -m experiments.chain "$@" >>"$name-$n.log" 2>&1 && exit
    echo "line $n failed: see $name-$n.log" >&2
    exit 1' chain
