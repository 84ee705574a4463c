#!/usr/bin/env bash
# The adapter (tools/transload_lm.py) under the real lm-evaluation-harness, which is too large for
# CI: its own tests, then three tasks made of tests/data/smollm2/endings.json, one a kind of request,
# and a few requests by the model's chat template.
#
#   tests/tools/lm_eval_real.sh VENV MODEL
#
# VENV: a folder for a virtual environment, made with lm-eval where it is missing.
# MODEL: SmolLM2-135M-Instruct.Q4_1.gguf.

set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,10p' "$0" >&2; exit 2; }
venv=$1 model=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export TRANSLOAD=${TRANSLOAD:-$root/build/release/transload}

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import lm_eval' 2>/dev/null || "$venv/bin/pip" install --quiet lm-eval
"$venv/bin/pip" list 2>/dev/null | grep -i '^lm.eval'
TRANSLOAD_LM_EVAL=1 TRANSLOAD_MODEL=$model "$venv/bin/python" "$root/tests/tools/lm_eval_test.py"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$venv/bin/python" - "$root/tests/data/smollm2/endings.json" "$work" <<'MAKE'
import json, sys
items = json.load(open(sys.argv[1], encoding="utf-8"))["items"]
with open(sys.argv[2] + "/items.jsonl", "w", encoding="utf-8") as file:
    for item in items:
        file.write(json.dumps({name: item[name] for name in ("context", "endings", "label")}) + "\n")
TASKS = {
    "endings_choice": {
        "output_type": "multiple_choice", "doc_to_text": "{{context}}",
        "doc_to_choice": "{{endings}}", "doc_to_target": "{{label}}",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]},
    "endings_rolling": {
        "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{context}}",
        "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}]},
    "endings_until": {
        "output_type": "generate_until", "doc_to_text": "{{context}}",
        "doc_to_target": "{{endings[label]}}",
        "generation_kwargs": {"until": [".", "\n"], "max_gen_toks": 16, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}]}}
for name, task in TASKS.items():
    with open(f"{sys.argv[2]}/{name}.yaml", "w", encoding="utf-8") as file:
        json.dump({"task": name, "dataset_path": "json", "test_split": "test", "dataset_kwargs": {
            "data_files": {"test": sys.argv[2] + "/items.jsonl"}}, **task}, file)
MAKE
export HF_HUB_OFFLINE=1 HF_DATASETS_CACHE=$work/datasets
"$venv/bin/python" "$root/tools/transload_lm.py" --model transload \
  --model_args "model=$model,transload=$TRANSLOAD,flags=--compute float32" \
  --tasks endings_choice,endings_rolling,endings_until --include_path "$work" \
  --output_path "$work/results"
"$venv/bin/python" "$root/tools/transload_lm.py" --model transload \
  --model_args "model=$model,transload=$TRANSLOAD,flags=--compute float32" --apply_chat_template \
  --tasks endings_choice,endings_until --limit 8 --include_path "$work"
"$venv/bin/python" - "$root/tests/data/smollm2/endings.json" "$work/results" <<'CHECK'
import glob, json, sys
items = json.load(open(sys.argv[1], encoding="utf-8"))["items"]
found, = glob.glob(sys.argv[2] + "/**/results_*.json", recursive=True)
got = json.load(open(found, encoding="utf-8"))["results"]["endings_choice"]["acc,none"]
want = sum(max(range(4), key=item["logprobs"].__getitem__) == item["label"]
           for item in items) / len(items)
print(f"endings_choice: acc {got}, by the reference's log-probabilities {want}")
sys.exit(abs(got - want) > 1e-9)
CHECK
