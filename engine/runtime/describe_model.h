// What callers and people are told of a model: its inputs, features, layers and outputs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_DESCRIBE_MODEL_H_
#define ULFD_ENGINE_RUNTIME_DESCRIBE_MODEL_H_

#include <vector>

#include "absl/status/status.h"
#include "engine/graph/graph.h"
#include "engine/graph/inference.h"
#include "engine/layers/layer.h"
#include "engine/plan/model_info.h"
#include "engine/weights/weights.h"
#include "proto/model_manifest.pb.h"
#include "proto/ulf.pb.h"

namespace ulfd::engine {

// What a model is described from; the graph is that before lowering.
struct ModelParts {
  const ulf::NetParameter& net;
  const ulfd::model::v1::ModelManifest& manifest;
  const Graph& graph;
  const GraphSpecs &stated, &specs;
  const std::vector<std::vector<Weight>>& weights;  // By layer.
  ModelResources& resources;
};

// Fills `info`.  INVALID_ARGUMENT for features and integers of the manifest that are none of the
// graph; errors of configurations and tables that layers read.
absl::Status DescribeModel(const ModelParts& parts, ModelInfo& info);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_DESCRIBE_MODEL_H_
