// Embedding configurations: read from their text files and checked.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_CONFIG_H_
#define ULFD_ENGINE_EMBEDDING_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/embedding.pb.h"

namespace ulfd::engine {

// Reads a blaze.EmbeddingConfig in text form and checks it.  INVALID_ARGUMENT "PATH:LINE:COLUMN:
// ..." for what the parser refuses, "PATH: ..." for what ValidateEmbeddingConfig refuses;
// NOT_FOUND.
absl::StatusOr<blaze::EmbeddingConfig> LoadEmbeddingConfig(const std::string& path);

// Every feature group at most once; every item names one; dim at least 1; udf_type 0, 1 or 2;
// trunc_num not negative; no item wider than 2^24 columns.  Errors name block, item and feature.
absl::Status ValidateEmbeddingConfig(const blaze::EmbeddingConfig& config);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_CONFIG_H_
