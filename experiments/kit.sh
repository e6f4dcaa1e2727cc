#!/usr/bin/env bash
# For a GPU machine that has torch, transformers and peft but no network: packs what else the experiments need into a folder.
# `experiments/kit.sh KIT 3.12 gsm8k hotpotqa` packs packages for Python 3.12 and two benchmarks from TACIT_DATA. On that machine
# `source KIT/activate`, in the checkout. A package that is there already is not replaced.
set -euo pipefail
kit=$1 python=$2
shift 2
mkdir -p "$kit"/{site,first,bin,data}
pip=(python3 -m pip install --quiet --no-deps -c constraints.txt --target)
"${pip[@]}" "$kit/first" typing_extensions # which torch brings too, and often an older one
"${pip[@]}" "$kit/site" pydantic annotated-types typing-inspection typer click shellingham annotated-doc rich markdown-it-py mdurl \
  pygments math-verify latex2sympy2-extended antlr4-python3-runtime==4.13.2 chess gguf peft
core=$(sed -n 's/^Requires-Dist: pydantic-core==//p' "$kit"/site/pydantic-*/METADATA)
"${pip[@]}" "$kit/site" --python-version "$python" --only-binary=:all: "pydantic-core==$core" PyYAML
find "$kit" -name __pycache__ -prune -exec rm -r {} +
cat >"$kit/first/sitecustomize.py" <<'END'
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "site"))
END
printf '#!/bin/sh\nexec python3 "$@"\n' >"$kit/bin/python"
chmod +x "$kit/bin/python"
cat >"$kit/activate" <<'END'
kit=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PATH=$kit/bin:$PATH PYTHONPATH=$kit/first:$PWD/src:$PWD TACIT_DATA=$kit/data HF_HUB_OFFLINE=1
END
for name; do cp -r "${TACIT_DATA:?}/$name" "$kit/data/"; done
du -sh "$kit"
