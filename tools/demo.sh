#!/usr/bin/env bash
# Sets up, then answers docs/examples/questions.jsonl with a 98 MB model on a 24 MB device.
# Run again, it sets up nothing and skips what is answered.
#
#   tools/demo.sh [FLAGS of transload generate]     for instance  tools/demo.sh --threads 1

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

install_packages build test model
build release transload
find_model

mkdir -p "$root/build/demo"
output=$root/build/demo/answers.jsonl
job=("$root/build/release/transload" generate --model "$model"
  --input "$root/docs/examples/questions.jsonl" --output "$output" --device-memory 24MB "$@")

say "the plan:"
"${job[@]}" --dry-run
say "generating"
"${job[@]}"
say "answers: $output"
