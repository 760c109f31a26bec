# Fails if a file includes what lies above it, so that the folders stay a ladder and never become a knot.
# SPDX-License-Identifier: Apache-2.0
#
#   cmake -DROOT=<repository> -P tests/check_layering.cmake
#
# proto <- engine <- recording <- server, and tools beside the server; tls below both.  Inside the engine:
# tensor <- kernels, weights, embedding <- layers <- graph <- runtime.  Nothing but tests includes tests.
cmake_minimum_required(VERSION 3.25)
if(NOT IS_DIRECTORY "${ROOT}")
  message(FATAL_ERROR "check_layering: -DROOT=<repository> is missing or no directory: '${ROOT}'")
endif()

# Per folder: a regular expression over the paths of this repository that its files may include.
set(base "engine/status_macros\\.h")
set(graph_protos "proto/(ulf|embedding|model_manifest)\\.pb\\.h")
set(rungs engine/tensor engine/kernels engine/weights engine/embedding engine/layers engine/graph engine/runtime engine recording tls server tools/convert tools)
set(may_engine "${base}")
set(may_engine_tensor "${base}|engine/tensor/.*")
set(may_engine_kernels "${may_engine_tensor}|engine/kernels/.*")
set(may_engine_weights "${may_engine_tensor}|engine/weights/.*|${graph_protos}")
# Embedding reads its files with the two readers of weights, and knows nothing else of weights.
set(may_engine_embedding
  "${may_engine_tensor}|engine/embedding/.*|engine/weights/(file|proto_file)\\.h|${graph_protos}")
set(may_engine_layers "${may_engine_weights}|engine/kernels/.*|engine/embedding/.*|engine/layers/.*")
set(may_engine_graph "${may_engine_layers}|engine/graph/.*")
set(may_engine_runtime "${may_engine_graph}|engine/runtime/.*")
# The daemon writes recordings, the tools read them; of the engine they need no more than reading files.
set(may_recording "${base}|engine/weights/file\\.h|proto/recording\\.pb\\.h|recording/.*")
set(may_tls "${base}|tls/.*")
set(may_server "engine/.*|proto/.*|recording/.*|server/.*|tls/.*")
# The converters are a program of their own: no gRPC, hence nothing of the other commands.
set(may_tools_convert "engine/.*|proto/(ulf|embedding|model_manifest)\\.pb\\.h|tools/convert/.*|tools/(command|text_table)\\.h")
set(may_tools "engine/.*|proto/.*|recording/.*|tls/.*|tools/.*")
# Libraries that only the daemon and the tools know of.
set(serving_libraries "(grpc|grpcpp|grpc\\+\\+|prometheus|spdlog|absl/flags)/.*|civetweb\\.h|CivetServer\\.h")

set(errors)
set(files_seen 0)
foreach(top engine recording tls server tools)
  file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/${top}/*.h ${ROOT}/${top}/*.cc)
  foreach(source IN LISTS sources)
    math(EXPR files_seen "${files_seen} + 1")
    set(rung)
    foreach(candidate IN LISTS rungs)
      if(NOT rung AND source MATCHES "^${candidate}/")
        set(rung ${candidate})
      endif()
    endforeach()
    if(rung STREQUAL "engine" AND NOT source MATCHES "^engine/[^/]+$")
      list(APPEND errors "${source}: its folder has no place in the order of tests/check_layering.cmake")
      continue()
    endif()
    string(REPLACE "/" "_" key ${rung})
    cmake_path(GET source PARENT_PATH folder)
    file(STRINGS ${ROOT}/${source} includes REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
    foreach(line IN LISTS includes)
      string(REGEX REPLACE "^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]*).*$" "\\1" path "${line}")
      if(path MATCHES "(^|/)\\.\\.?/")
        list(APPEND errors "${source}: \"${path}\": includes are rooted at the repository")
      elseif(path MATCHES "^(proto|engine|recording|tls|server|tools|tests)/")
        if(NOT path MATCHES "^(${may_${key}})$")
          list(APPEND errors "${source}: \"${path}\" is not below ${rung}")
        endif()
      elseif(EXISTS ${ROOT}/${folder}/${path})
        list(APPEND errors "${source}: \"${path}\": includes are rooted at the repository")
      elseif(top STREQUAL "engine" AND path MATCHES "^(${serving_libraries})$")
        list(APPEND errors "${source}: \"${path}\": the engine knows nothing of serving")
      endif()
    endforeach()
  endforeach()
endforeach()

if(files_seen EQUAL 0)
  message(FATAL_ERROR "check_layering: no source file below ${ROOT}")
endif()
if(errors)
  list(JOIN errors "\n  " text)
  message(FATAL_ERROR "check_layering: includes that point back:\n  ${text}")
endif()
message(STATUS "check_layering: ${files_seen} files, every include points down")
