// What KServe's requests seem to cost, and what is refused before their values are looked at.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_KSERVE_ROWS_H_
#define ULFD_SERVER_SCORING_KSERVE_ROWS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/model.h"
#include "proto/open_inference.pb.h"
#include "server/scoring/decoded_request.h"

namespace ulfd::server {

// How many ads the request seems to cost: see request_decoder.h.
int64_t CountRows(const inference::ModelInferRequest& request, const engine::Model& model,
                  const RequestLimits& limits);
// The same of a request whose values are still to come, as many as its shapes say.
int64_t CountRowsByShapes(const inference::ModelInferRequest& request, const engine::Model& model,
                          const RequestLimits& limits);

// What DecodeRequest would say of the names of the inputs, and of more rows than it takes; before
// there are values.
absl::Status CheckNamesAndRows(const inference::ModelInferRequest& request,
                               const engine::Model& model, const RequestLimits& limits);

// INVALID_ARGUMENT, with names that may have been meant.
absl::Status UnknownInput(absl::string_view name, const engine::ModelInfo& info);
// RESOURCE_EXHAUSTED beyond max_ads: rows of which nobody knows whose they are count as ads, too.
absl::Status CheckLeadingRows(absl::string_view name, int64_t rows, const RequestLimits& limits);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_KSERVE_ROWS_H_
