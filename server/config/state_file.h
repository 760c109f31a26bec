// ServerConfig.state_file: what operators changed, from one run of the daemon to the next.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_CONFIG_STATE_FILE_H_
#define ULFD_SERVER_CONFIG_STATE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/models/operator_state.h"

namespace ulfd::server {

// Nothing if there is no such file.  INVALID_ARGUMENT: it is not one of ours ("FILE:LINE:COLUMN:
// ...", or the model that is wrong).
absl::StatusOr<OperatorStates> ReadStateFile(const std::string& path);

// The file has either the old states or the new ones, whatever happens.  UNAVAILABLE: it cannot be
// written (says why).
absl::Status WriteStateFile(const std::string& path, const OperatorStates& states);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_CONFIG_STATE_FILE_H_
