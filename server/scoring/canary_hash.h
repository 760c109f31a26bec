// Who asks: what a canary tells users apart by, from a call's metadata or from its request.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_CANARY_HASH_H_
#define ULFD_SERVER_SCORING_CANARY_HASH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"
#include "proto/tf_serving.pb.h"
#include "server/models/model_types.h"

namespace ulfd::server {

// The value of a metadata key of a call; empty if it has none.
using MetadataLookup = std::function<absl::string_view(const std::string& key)>;

// A UserHash, the same in every process, so that a user gets the same version from every replica.
template <typename Request>
int64_t HashUser(const CanaryConfig& canary, const MetadataLookup& metadata,
                 const Request& request);

// The hash of a user feature of the request; nullopt: it is not there, or empty.
std::optional<int64_t> HashFeature(const ulfd::v1::PredictRequest& request,
                                   absl::string_view feature);
std::optional<int64_t> HashFeature(const inference::ModelInferRequest& request,
                                   absl::string_view feature);
std::optional<int64_t> HashFeature(const tensorflow::serving::PredictRequest& request,
                                   absl::string_view feature);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_CANARY_HASH_H_
