// What the configuration file says about models, as the model manager takes it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_CONFIG_MODEL_SETTINGS_H_
#define ULFD_SERVER_CONFIG_MODEL_SETTINGS_H_

#include <vector>

#include "proto/server_config.pb.h"
#include "server/config/settings.h"
#include "server/models/model_types.h"

namespace ulfd::server {

// Complains about what no option of a field can say: names, labels, what a canary goes by.
void CheckModelSettings(const ulfd::config::v1::ServerConfig& settings, const SettingsPlace& place);

// `settings` are checked and complete.
VersionPolicy DefaultPolicyOf(const ulfd::config::v1::ServerConfig& settings);
// base_path is "" where the file says none.
std::vector<ModelConfig> ModelsOf(const ulfd::config::v1::ServerConfig& settings);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_CONFIG_MODEL_SETTINGS_H_
