// What the manager knows about models, as messages of the native API.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_MODEL_DESCRIPTION_H_
#define ULFD_SERVER_SERVICES_MODEL_DESCRIPTION_H_

#include <string>
#include <vector>

#include "google/protobuf/repeated_ptr_field.h"
#include "proto/predict.pb.h"
#include "server/models/model_lookup.h"
#include "server/models/model_types.h"

namespace ulfd::server {

void FillTime(std::chrono::system_clock::time_point time, google::protobuf::Timestamp& out);

// Every model and version; error texts clipped to what the wire takes.
void DescribeModels(const ModelLookup& models,
                    google::protobuf::RepeatedPtrField<ulfd::v1::ModelStatus>& out);

// Inputs, outputs and features of one version.
void DescribeModel(const ServedModel& served, const std::vector<std::string>& labels,
                   ulfd::v1::GetModelMetadataResponse& out);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_MODEL_DESCRIPTION_H_
