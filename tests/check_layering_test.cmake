# The layering check must fail on each kind of include that points back, and name it; and pass without one.
# SPDX-License-Identifier: Apache-2.0
#
#   cmake -DSCRIPT=check_layering.cmake -DWORK=<scratch folder> -P check_layering_test.cmake
cmake_minimum_required(VERSION 3.25)

# expect(<text in the output, "" for success> <file> <its only line>)
function(expect wanted file line)
  file(REMOVE_RECURSE ${WORK})
  file(WRITE ${WORK}/engine/tensor/tensor.h "#include <vector>\n#include \"engine/status_macros.h\"\n")
  file(WRITE ${WORK}/${file} "${line}\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${WORK} -P ${SCRIPT}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")  # CMake wraps messages.
  string(FIND "${output}" "${wanted}" found)
  if(wanted STREQUAL "" AND result EQUAL 0)
    return()
  endif()
  if(NOT wanted STREQUAL "" AND NOT result EQUAL 0 AND NOT found EQUAL -1)
    return()
  endif()
  message(SEND_ERROR "${file} with '${line}': wanted '${wanted}', got ${result}: ${output}")
endfunction()

expect("" engine/layers/a.cc "#include \"engine/weights/npz.h\"")
expect("" engine/layers/a.cc "#include \"engine/embedding/table.h\"")
expect("" engine/embedding/a.cc "#include \"engine/weights/proto_file.h\"")
expect("" engine/weights/a.cc "#include \"proto/ulf.pb.h\"")
expect("" engine/runtime/a.cc "#include \"engine/graph/graph.h\"")
expect("" server/a.cc "#include \"engine/runtime/model.h\"")
expect("" tools/a.cc "#include \"proto/predict.grpc.pb.h\"")
expect("engine/tensor/a.cc: \"engine/weights/npz.h\" is not below engine/tensor"
  engine/tensor/a.cc "#include \"engine/weights/npz.h\"")
expect("is not below engine/weights" engine/weights/a.cc "#include \"engine/embedding/table.h\"")
expect("is not below engine/embedding" engine/embedding/a.cc "#include \"engine/weights/npz.h\"")
expect("is not below engine/layers" engine/layers/a.cc "#include \"engine/graph/graph.h\"")
expect("is not below engine/graph" engine/graph/a.h "#  include \"engine/runtime/model.h\"")
expect("is not below engine/runtime" engine/runtime/a.cc "#include \"server/worker.h\"")
expect("is not below engine/runtime" engine/runtime/a.cc "#include \"proto/predict.pb.h\"")
expect("is not below server" server/a.cc "#include \"tools/predict.h\"")
expect("is not below tools" tools/a.cc "#include \"server/model_manager.h\"")
expect("is not below engine" engine/a.h "#include \"engine/tensor/tensor.h\"")
expect("is not below server" server/a.cc "#include \"tests/e2e/helper.h\"")
expect("the engine knows nothing of serving" engine/runtime/a.cc "#include <grpcpp/grpcpp.h>")
expect("are rooted at the repository" engine/layers/a.cc "#include \"../tensor/tensor.h\"")
expect("are rooted at the repository" engine/tensor/a.cc "#include \"tensor.h\"")
expect("has no place in the order" engine/utils/a.h "#include <vector>")
file(REMOVE_RECURSE ${WORK})
