# Tests of the command with the formats that jobs and models come in; 77 is a test skipped by name.
find_package(Python3 COMPONENTS Interpreter REQUIRED)

function(format_test name)
  add_test(NAME tools.${name}
           COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tests/tools/${name}_test.py
                   $<TARGET_FILE:transload>)
  set_tests_properties(tools.${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
endfunction()
format_test(chat)
format_test(batch)
format_test(doctor)
format_test(convert)
