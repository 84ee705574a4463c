# Tests of the command with the formats that jobs and models come in; 77 is a test skipped by name.
find_package(Python3 COMPONENTS Interpreter REQUIRED)

# format_test(NAME FILE [CLASS...]): the classes of FILE, or all of it.
function(format_test name file)
  add_test(NAME tools.${name}
           COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tests/tools/${file}
                   $<TARGET_FILE:transload> ${ARGN})
  set_tests_properties(tools.${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
endfunction()

format_test(chat chat_test.py Chat ChangedModel)
format_test(batch batch_test.py Batch)
format_test(batch_lines batch_lines_test.py)
format_test(doctor doctor_test.py)
format_test(convert convert_test.py)
format_test(compare compare_test.py)
format_test(streaming streaming_test.py)
# The real model: slow also keeps it out of the sanitizers' runs.
format_test(chat_reference chat_test.py Reference)
set_tests_properties(tools.chat_reference PROPERTIES LABELS slow)
