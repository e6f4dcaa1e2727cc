#!/usr/bin/env bash
# Many runs on one GPU: `experiments/block.sh FILE [AT_ONCE]`, where each line of FILE is the arguments of one
# `python -m experiments.chain`. Line N of FILE.txt logs to FILE-N.log. Run it again to resume what was stopped, which
# `timeout -k 50 540 experiments/block.sh FILE` does well: it waits until every run has saved. With UNTIL=200 before it,
# training ends 200 seconds after the block began, in place of each line's own `--until`, so that there is time for tests.
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

trap '' TERM # each chain heeds it
name=$(basename "$lines" .txt)
export name
export END=${UNTIL:+$(($(date +%s) + UNTIL))}
# a blank at the end of a line would join the next one to it
grep -nvE '^[[:space:]]*(#|$)' "$lines" | sed -E 's/^([0-9]+):/\1 /; s/[[:space:]]+$//' |
  xargs -P "$at_once" -L 1 sh -c '
    n=$1; shift
    env --default-signal=TERM python -m experiments.chain "$@" ${END:+--until "$((END - $(date +%s)))"} >>"$name-$n.log" 2>&1 && exit
    code=$?
    echo "line $n ended with $code: see $name-$n.log" >&2
    [ $code != 143 ] || exit 255 # told to end: no further line is begun
    exit 1' chain | cat # which ends with the last of them; xargs does not wait
