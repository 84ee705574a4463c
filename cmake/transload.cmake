# How a folder becomes a library and a folder of tests an executable.

add_library(transload_options INTERFACE)
target_include_directories(transload_options INTERFACE ${CMAKE_SOURCE_DIR})
if(TRANSLOAD_WARNINGS)
  target_compile_options(transload_options INTERFACE -Wall -Wextra -Wconversion -Wshadow -Werror)
endif()
# GCC 12 reports impossible overlaps in std::string at -O3 (its bug 105651).
target_compile_options(transload_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(TRANSLOAD_SANITIZE)
  target_compile_options(transload_options INTERFACE -fsanitize=${TRANSLOAD_SANITIZE}
                                                     -fno-omit-frame-pointer)
  target_link_options(transload_options INTERFACE -fsanitize=${TRANSLOAD_SANITIZE})
endif()

function(transload_target_name folder result)
  string(REPLACE "/" "_" name "transload_${folder}")
  set(${result} ${name} PARENT_SCOPE)
endfunction()

# transload_library(FOLDER [ALSO folders...] DEPENDS folders... [PUBLIC libraries...]
#                   [PRIVATE libraries...])
# A static library of all sources below FOLDER and those of ALSO.
function(transload_library folder)
  cmake_parse_arguments(ARG "" "" "ALSO;DEPENDS;PUBLIC;PRIVATE" ${ARGN})
  transload_target_name(${folder} target)
  list(TRANSFORM ARG_ALSO PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE patterns)
  list(TRANSFORM patterns APPEND /*.cc)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cc ${patterns})
  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE ${ARG_PRIVATE})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(${target} ${scope} transload_options ${ARG_PUBLIC})
  foreach(other ${ARG_DEPENDS})
    transload_target_name(${other} other_target)
    target_link_libraries(${target} ${scope} ${other_target})
  endforeach()
endfunction()

# transload_tests(NAME LIBRARIES libraries...): an executable NAME_test of *_test.cc below
# tests/NAME (a slash becomes an underscore), every case known to CTest. Under CTest properties draw
# their cases from one seed; RC_PARAMS of one's own takes other ones when the executable is run.
function(transload_tests folder)
  cmake_parse_arguments(ARG "" "" "LIBRARIES" ${ARGN})
  string(REPLACE "/" "_" name ${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE ${ARG_LIBRARIES} rapidcheck GTest::gmock
                                             GTest::gtest_main)
  target_compile_definitions(${name}_test PRIVATE
                             TRANSLOAD_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
  gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 600 ENVIRONMENT RC_PARAMS=seed=20230315)
endfunction()

# transload_bench(NAME LIBRARIES libraries...): tests/bench/NAME.cc as an executable. Built on
# request only; without Google Benchmark there is none.
function(transload_bench name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES" ${ARGN})
  if(NOT benchmark_FOUND)
    return()
  endif()
  add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/${name}.cc)
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} benchmark::benchmark)
endfunction()
