// What can be set about certificates, tokens and who may call; proto/server_config.proto has the words.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SECURITY_SECURITY_OPTIONS_H_
#define ULFD_SERVER_SECURITY_SECURITY_OPTIONS_H_

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace ulfd::server {

// The certificate of one port.
struct TlsOptions {
  std::string certificate_file;  // "": plain text.
  std::string key_file;
  std::string client_ca_file;  // "": clients show no certificate.
  std::chrono::milliseconds reload_interval{1000};
  bool on() const { return !certificate_file.empty(); }
};

struct AuthenticationOptions {
  std::string token_file;                            // "": no tokens.
  std::vector<std::string> allowed_clients = {"*"};  // Of models that name none.
  std::vector<std::string> admin_clients;            // Empty: the admin port asks nobody.
  bool open_health = true;
  std::chrono::milliseconds reload_interval{1000};
};

// Model -> clients that may use it; absent: AuthenticationOptions::allowed_clients.
using ModelClients = std::map<std::string, std::vector<std::string>>;

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SECURITY_SECURITY_OPTIONS_H_
