// Who may use which model.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SECURITY_ACCESS_RULES_H_
#define ULFD_SERVER_SECURITY_ACCESS_RULES_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/security/security_options.h"

namespace ulfd::server {

// Names of clients that may do something; "*" among them: every client with a name.
class ClientList {
 public:
  explicit ClientList(const std::vector<std::string>& names) : names_(names.begin(), names.end()) {}
  bool Has(absl::Span<const std::string> names) const {
    if (names_.count("*") > 0) return true;
    for (const std::string& name : names) {
      if (names_.count(name) > 0) return true;
    }
    return false;
  }

 private:
  std::set<std::string> names_;
};

// Immutable.
class AccessRules {
 public:
  // Everybody may use everything.
  AccessRules() : others_({"*"}) {}
  AccessRules(const std::vector<std::string>& default_clients, const ModelClients& by_model)
      : others_(default_clients) {
    for (const auto& [model, clients] : by_model) models_.emplace(model, ClientList(clients));
  }

  // `names`: all names of one client.
  bool MayUse(absl::Span<const std::string> names, const std::string& model) const {
    const auto it = models_.find(model);
    return (it == models_.end() ? others_ : it->second).Has(names);
  }
  // PERMISSION_DENIED unless it may.
  absl::Status Check(absl::Span<const std::string> names, const std::string& model) const;

 private:
  ClientList others_;
  std::map<std::string, ClientList> models_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SECURITY_ACCESS_RULES_H_
