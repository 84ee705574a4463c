# The libFuzzer targets (preset fuzz): everything is compiled with coverage counters, each
# tests/fuzz/NAME_fuzz.cc becomes an executable NAME_fuzz with libFuzzer's main.
# tools/test.sh --fuzz runs them, from the seeds in tests/fuzz/corpus/NAME.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "TRANSLOAD_FUZZ needs clang: configure with the preset fuzz")
endif()
# What UBSan finds ends the run, as a finding of the fuzzer.
target_compile_options(transload_options INTERFACE -fsanitize=fuzzer-no-link
                                                   -fno-sanitize-recover=all)

function(transload_fuzz_targets)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_fuzz.cc)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE transload_engine_executor transload_engine_job)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  endforeach()
endfunction()
