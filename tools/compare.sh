#!/usr/bin/env bash
# Sets up, then compares transload with what people use: see tools/compare/run.py --help.
#
#   tools/compare.sh --gate memory     a model in memory, batches 1 to 64
#   tools/compare.sh --gate larger     a model larger than the memory that it gets

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

install_packages build test model compare
build release transload
find_model
export TRANSLOAD_MODEL=$model
exec python3 -B "$root/tools/compare/run.py" "$@"
