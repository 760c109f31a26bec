// The demo model's files: a Deep Interest Network whose weights are written down instead of
// trained.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_DEMO_DEMO_MODEL_H_
#define ULFD_TOOLS_DEMO_DEMO_MODEL_H_

#include <string>

#include "absl/status/status.h"
#include "proto/ulf.pb.h"
#include "tools/demo/demo_world.h"

namespace ulfd::tools {

// graph_ulf.txt, with comments.
std::string DemoGraphText();
// model.textproto: what the graph cannot say.
std::string DemoManifest();
// The two embedding configurations that the graph names.
std::string DemoUserEmbeddingConf();
std::string DemoAdEmbeddingConf();
// The weights that plant the preferences; same for every number of ids, except that they read the
// world's directions.
ulf::NetWeightsParameter DemoWeights(const DemoWorld& world, uint64_t seed);
// Writes the three tables, the graph, the confs, the weights and _SUCCESS into the directory, which
// exists.
absl::Status WriteDemoModel(const DemoWorld& world, uint64_t seed, const std::string& directory);
// Writes example requests for a model of that name into the directory, which exists.
absl::Status WriteDemoRequests(const DemoWorld& world, const std::string& model,
                               const std::string& directory);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_DEMO_DEMO_MODEL_H_
