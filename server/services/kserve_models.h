// What KServe v2 says of models; with Triton's extensions: configuration, statistics and index.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_KSERVE_MODELS_H_
#define ULFD_SERVER_SERVICES_KSERVE_MODELS_H_

#include <cstdint>
#include <vector>

#include "engine/runtime/model.h"
#include "proto/open_inference.pb.h"
#include "server/models/model_lookup.h"
#include "server/observe/metrics.h"

namespace ulfd::server {

// Metadata of a version, and which versions of its model serve.
void DescribeServed(const engine::ModelInfo& info, const std::vector<int64_t>& versions,
                    inference::ModelMetadataResponse& out);

void DescribeConfig(const engine::ModelInfo& info, inference::ModelConfig& out);

// Of the versions that serve and that `wanted` means: with an empty name all that its client may
// use.
void CollectStatistics(const ModelLookup& models, Metrics& metrics, const ModelChoice& wanted,
                       inference::ModelStatisticsResponse& out);

// Models that the client of `caller` may use.
void ListRepository(const ModelLookup& models, const ModelChoice& caller, bool only_ready,
                    inference::RepositoryIndexResponse& out);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_KSERVE_MODELS_H_
