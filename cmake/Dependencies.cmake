# LibTorch comes from a PyTorch wheel (TORCH_DIR: the folder that holds lib/ and include/). The wheel's own TorchConfig.cmake is not
# used: it probes for CUDA, wants a toolkit and links libtorch_cuda. The wheel's libraries find each other through their own RPATH,
# which is why shared-library dependencies may stay unresolved at link time and the run path is the old-style transitive one.
if(NOT TORCH_DIR)
  file(GLOB TORCH_CANDIDATES ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  list(GET TORCH_CANDIDATES 0 TORCH_DIR)
endif()
# A stand-alone LibTorch has the same layout as the wheel's torch/ folder.
if(NOT EXISTS "${TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "TORCH_DIR='${TORCH_DIR}' holds no lib/libtorch_cpu.so: run 'make setup', or set TORCH_DIR to the folder of an "
                      "installed PyTorch (python3 -c 'import torch; print(torch.__path__[0])') or LibTorch")
endif()
set(TORCH_DIR "${TORCH_DIR}" CACHE PATH "Folder of PyTorch or LibTorch (with lib/ and include/)" FORCE)

add_library(torch::c10 SHARED IMPORTED)
set_target_properties(torch::c10 PROPERTIES IMPORTED_LOCATION ${TORCH_DIR}/lib/libc10.so)
add_library(torch::cpu SHARED IMPORTED)
set_target_properties(torch::cpu PROPERTIES
  IMPORTED_LOCATION ${TORCH_DIR}/lib/libtorch_cpu.so
  INTERFACE_INCLUDE_DIRECTORIES "${TORCH_DIR}/include;${TORCH_DIR}/include/torch/csrc/api/include"
  INTERFACE_LINK_LIBRARIES torch::c10
  INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined,--disable-new-dtags,-rpath,${TORCH_DIR}/lib")

# Arrow and its parquet library out of the wheel of pyarrow, whose libraries have their version in their names.
file(GLOB ARROW_CANDIDATES ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/pyarrow)
list(GET ARROW_CANDIDATES 0 ARROW_DIR)
file(GLOB ARROW_LIBRARY ${ARROW_DIR}/libarrow.so.*)
file(GLOB PARQUET_LIBRARY ${ARROW_DIR}/libparquet.so.*)
if(NOT ARROW_LIBRARY OR NOT PARQUET_LIBRARY)
  message(FATAL_ERROR "'${ARROW_DIR}' holds no libarrow.so and libparquet.so: run 'make setup'")
endif()
add_library(arrow::arrow SHARED IMPORTED)
set_target_properties(arrow::arrow PROPERTIES IMPORTED_LOCATION ${ARROW_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${ARROW_DIR}/include)
add_library(arrow::parquet SHARED IMPORTED)
set_target_properties(arrow::parquet PROPERTIES
  IMPORTED_LOCATION ${PARQUET_LIBRARY}
  INTERFACE_LINK_LIBRARIES arrow::arrow
  INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined,--disable-new-dtags,-rpath,${ARROW_DIR}")

find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(HIGHWAY REQUIRED IMPORTED_TARGET libhwy)
find_path(TOMLPP_INCLUDE toml++/toml.h REQUIRED)
if(DEPTHROUTE_TESTS)
  find_package(GTest REQUIRED)
endif()
