// What can be set about certificates, tokens and who may call; proto/server_config.proto has the
// words.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SECURITY_SECURITY_OPTIONS_H_
#define ULFD_SERVER_SECURITY_SECURITY_OPTIONS_H_

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/tls/tls_material.h"

namespace ulfd::server {

struct AuthenticationOptions {
  std::string token_file;                            // "": no tokens.
  std::vector<std::string> allowed_clients = {"*"};  // Of models that name none.
  std::vector<std::string> admin_clients;            // Empty: the admin port asks nobody.
  bool open_health = true;
  std::chrono::milliseconds reload_interval{0};
};

// Model -> clients that may use it; absent: AuthenticationOptions::allowed_clients.
using ModelClients = std::map<std::string, std::vector<std::string>>;

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SECURITY_SECURITY_OPTIONS_H_
