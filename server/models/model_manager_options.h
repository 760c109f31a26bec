// Checks of ModelManagerOptions.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MODEL_MANAGER_OPTIONS_H_
#define ULFD_SERVER_MODELS_MODEL_MANAGER_OPTIONS_H_

#include "absl/status/status.h"
#include "server/models/model_manager.h"

namespace ulfd::server {

// Fills in defaults (base_path, now) and checks everything that ModelManager::Create promises to
// check.
absl::Status CompleteOptions(ModelManagerOptions& options);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MODEL_MANAGER_OPTIONS_H_
