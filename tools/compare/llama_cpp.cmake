# Read by llama-cpp-python's own CMakeLists.txt (as CMAKE_PROJECT_INCLUDE): leaves llama.cpp's common
# library out, which the Python package does not use and which is more than half of the build.
set(LLAMA_BUILD_COMMON OFF)
