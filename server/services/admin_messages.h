// Admin calls that change something, as messages <-> the manager's changes.  Free of gRPC's calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_ADMIN_MESSAGES_H_
#define ULFD_SERVER_SERVICES_ADMIN_MESSAGES_H_

#include "absl/status/statusor.h"
#include "proto/admin.pb.h"
#include "server/models/model_change.h"

namespace ulfd::server {

// INVALID_ARGUMENT: an empty name or label, a version below 1.
absl::StatusOr<ModelChange> ChangeOf(const ulfd::admin::v1::LoadModelRequest& request);
absl::StatusOr<ModelChange> ChangeOf(const ulfd::admin::v1::UnloadModelRequest& request);
absl::StatusOr<ModelChange> ChangeOf(const ulfd::admin::v1::SetLabelRequest& request);
absl::StatusOr<ModelChange> ChangeOf(const ulfd::admin::v1::RollbackRequest& request);

// The reply to a change whose status is OK; error texts clipped to what the wire takes.
void FillReply(const ModelChangeResult& result, ulfd::admin::v1::LoadModelResponse& reply);
void FillReply(const ModelChangeResult& result, ulfd::admin::v1::UnloadModelResponse& reply);
void FillReply(const ModelChangeResult& result, ulfd::admin::v1::SetLabelResponse& reply);
void FillReply(const ModelChangeResult& result, ulfd::admin::v1::RollbackResponse& reply);
void FillReply(const ModelChangeResult& result, ulfd::admin::v1::ReloadConfigResponse& reply);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_ADMIN_MESSAGES_H_
