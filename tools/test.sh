#!/usr/bin/env bash
# Sets up as demo.sh does, then runs the tests.
#
#   tools/test.sh [CTEST ARGUMENTS]            all tests, on the release build
#   tools/test.sh --asan [CTEST ARGUMENTS]     under AddressSanitizer and UBSan
#   tools/test.sh --tsan [CTEST ARGUMENTS]     under ThreadSanitizer
#   tools/test.sh --fuzz SECONDS [TARGET...]   each libFuzzer target for so long
#   tools/test.sh --tidy                       clang-tidy over everything, as errors

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# run_ctest PRESET [CTEST ARGUMENTS]
run_ctest() {
  local preset=$1 launcher=()
  shift
  install_packages build test model
  build "$preset"
  find_model
  export TRANSLOAD_MODEL=$model
  export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  # ThreadSanitizer's shadow has no room for a fully randomised address space.
  if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then
    launcher=(setarch -R)
  fi
  "${launcher[@]}" ctest --test-dir "$root/build/$preset" --parallel 2 --output-on-failure "$@"
}

# run_fuzz SECONDS [TARGET...]: new inputs go to build/fuzz/corpus, what fails to build/fuzz/crashes.
run_fuzz() {
  local seconds=$1 targets name seeds dictionary
  shift
  install_packages build fuzz
  targets=("$@")
  if [ ${#targets[@]} -eq 0 ]; then
    for name in "$root"/tests/fuzz/*_fuzz.cc; do targets+=("$(basename "$name" .cc)"); done
  fi
  build fuzz "${targets[@]}"
  export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  ASAN_SYMBOLIZER_PATH=$(command -v llvm-symbolizer-16 || command -v llvm-symbolizer || true)
  export ASAN_SYMBOLIZER_PATH
  for name in "${targets[@]}"; do
    [ -x "$root/build/fuzz/$name" ] || fail "no fuzz target $name in build/fuzz"
    say "fuzzing $name for $seconds s"
    seeds=$root/tests/fuzz/corpus/${name%_fuzz}
    dictionary=$root/tests/fuzz/${name%_fuzz}.dict
    mkdir -p "$root/build/fuzz/corpus/$name" "$root/build/fuzz/crashes"
    "$root/build/fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
      -print_final_stats=1 -verbosity=0 -artifact_prefix="$root/build/fuzz/crashes/$name-" \
      $([ -f "$dictionary" ] && echo "-dict=$dictionary") \
      "$root/build/fuzz/corpus/$name" $([ -d "$seeds" ] && echo "$seeds") ||
      fail "$name failed; the input is in build/fuzz/crashes"
  done
}

case ${1:-} in
  --asan | --tsan) run_ctest "${1#--}" "${@:2}" ;;
  --fuzz)
    [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "--fuzz needs the seconds for each target"
    run_fuzz "${@:2}"
    ;;
  --tidy)
    install_packages build test tidy
    build tidy
    ;;
  -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" ;;
  *) run_ctest release "$@" ;;
esac
