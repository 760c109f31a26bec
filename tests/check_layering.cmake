# Fails if a file includes what lies above it, so that the folders stay a ladder and never become a
# knot.
# SPDX-License-Identifier: Apache-2.0
#
#   cmake -DROOT=<repository> -P tests/check_layering.cmake
#
# base <- engine <- server, and tools beside the server.  Nothing but tests includes tests.  A
# folder that is not named here has no place in the order.
cmake_minimum_required(VERSION 3.25)
if(NOT IS_DIRECTORY "${ROOT}")
  message(FATAL_ERROR "check_layering: -DROOT=<repository> is missing or no directory: '${ROOT}'")
endif()

# rung(FOLDER REGEX...): the files of FOLDER may include its own and those of this repository that a
# REGEX matches.
set(rungs)
function(rung folder)
  string(REPLACE "/" "_" key ${folder})
  list(JOIN ARGN "|" allowed)
  set(may_${key} "${folder}/.*|${allowed}" PARENT_SCOPE)
  set(rungs ${rungs} ${folder} PARENT_SCOPE)
endfunction()
# ladder(TOP ROOM... BELOW REGEX...): each room of TOP may include those named before it, and what a
# REGEX matches.
macro(ladder top)
  cmake_parse_arguments(L "" "" "ROOMS;BELOW" ${ARGN})
  foreach(room IN LISTS L_ROOMS)
    rung(${top}/${room} ${L_BELOW})
    list(APPEND L_BELOW "${top}/${room}/.*")
  endforeach()
endmacro()

set(root "base/[^/]*")
set(graph_protos "proto/(ulf|embedding|model_manifest|delta|stored_table)\\.pb\\.h")
rung(base/flags ${root})
rung(base/recording ${root} "proto/recording\\.pb\\.h")
rung(base/tls ${root})
rung(base ${root})

rung(engine/tensor ${root})
rung(engine/kernels ${root} "engine/tensor/.*")
rung(engine/weights ${root} ${graph_protos} "engine/tensor/.*")
# Embedding reads and hashes its files as weights do, and knows nothing else of weights.
rung(engine/embedding ${root} ${graph_protos} "engine/tensor/.*" "engine/weights/(digest|proto_file)\\.h")
rung(engine/directory ${root} ${graph_protos} "engine/(tensor|weights)/.*")
rung(engine/caches ${root} "engine/(tensor|kernels|embedding)/.*")
rung(engine/stores ${root} ${graph_protos} "base/tls/.*" "engine/(tensor|embedding)/.*")
set(below_layers ${root} ${graph_protos} "engine/(tensor|kernels|weights|embedding)/.*")
# Layer types know the contract and what they have in common, not each other's folder.
set(contract "engine/layers/[^/]*")
rung(engine/layers/common ${below_layers} ${contract})
rung(engine/layers/types ${below_layers} ${contract} "engine/layers/common/.*")
rung(engine/layers/fused ${below_layers} ${contract} "engine/layers/common/.*")
rung(engine/layers ${below_layers})
rung(engine/graph ${below_layers} "engine/layers/.*")
rung(engine/plan ${below_layers} "engine/(layers|graph)/.*")
rung(engine/runtime ${below_layers} "engine/(directory|caches|stores|layers|graph|plan)/.*")

ladder(server
  ROOMS system scheduler security models observe recorder config scoring rpc services
  BELOW "base/.*" "proto/.*" "engine/.*")
rung(server "base/.*" "proto/.*" "engine/.*")

rung(tools/cli "base/.*")
# The converters are a program of their own: no gRPC, hence nothing of the other commands.
set(below_convert "base/.*" "engine/.*" ${graph_protos} "tools/cli/.*" "tools/convert/[^/]*")
rung(tools/convert/caffe ${below_convert})
ladder(tools/convert/onnx ROOMS model rewrites operators proof rows fold features BELOW ${below_convert})
rung(tools/convert/onnx ${below_convert})
rung(tools/convert ${below_convert})
rung(tools/model "base/.*" "engine/.*" "proto/.*" "tools/cli/.*")
rung(tools/table "base/.*" "engine/.*" ${graph_protos} "tools/(cli|model)/.*")
rung(tools/sync "base/.*" "engine/.*" ${graph_protos} "tools/cli/.*")
rung(tools/explain "base/.*" "engine/.*" "proto/.*" "tools/(cli|model)/.*")
rung(tools/demo "base/.*" "engine/.*" "proto/.*" "tools/cli/.*")
rung(tools/client "base/.*" "engine/.*" "proto/.*" "tools/(cli|model)/.*")
rung(tools/load "base/.*" "engine/.*" "proto/.*" "tools/(cli|model|client)/.*")
rung(tools/compare "base/.*" "engine/.*" "proto/.*" "tools/(cli|model|load)/.*")
rung(tools "base/.*" "tools/.*")
# Libraries that only the daemon and the tools know of.
set(serving_libraries "(grpc|grpcpp|grpc\\+\\+|prometheus|spdlog|absl/flags)/.*|civetweb\\.h|CivetServer\\.h")

set(errors)
set(files_seen 0)
foreach(top base engine server tools)
  file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/${top}/*.h ${ROOT}/${top}/*.cc)
  foreach(source IN LISTS sources)
    math(EXPR files_seen "${files_seen} + 1")
    set(rung)
    foreach(candidate IN LISTS rungs)
      if(NOT rung AND source MATCHES "^${candidate}/")
        set(rung ${candidate})
      endif()
    endforeach()
    # Only a file at its top belongs to a rung that has rooms, but for what it holds itself
    # (engine/graph/passes).
    cmake_path(GET source PARENT_PATH folder)
    if(NOT rung OR (rung MATCHES "^(base|server|tools|tools/convert|tools/convert/onnx|engine/layers)$" AND NOT folder STREQUAL rung))
      list(APPEND errors "${source}: its folder has no place in the order of tests/check_layering.cmake")
      continue()
    endif()
    string(REPLACE "/" "_" key ${rung})
    file(STRINGS ${ROOT}/${source} includes REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
    foreach(line IN LISTS includes)
      string(REGEX REPLACE "^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]*).*$" "\\1" path "${line}")
      if(path MATCHES "(^|/)\\.\\.?/")
        list(APPEND errors "${source}: \"${path}\": includes are rooted at the repository")
      elseif(path MATCHES "^(proto|base|engine|server|tools|tests)/")
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
