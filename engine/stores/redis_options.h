// How a Redis Cluster is reached.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_STORES_REDIS_OPTIONS_H_
#define ULFD_ENGINE_STORES_REDIS_OPTIONS_H_

#include <string>
#include <vector>

namespace ulfd::engine {

struct RedisOptions {
  std::string name;                // For messages and manifests.
  std::vector<std::string> nodes;  // "address:port" of some of its nodes.
  std::string username;            // "": Redis's default user.
  // Its first line is the password; read for each connection.  "": none.
  std::string password_file;
  // PEM.  "": plain text.
  std::string ca_file;
  // What this side shows.  PEM.  "": nothing.
  std::string certificate_file, key_file;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_STORES_REDIS_OPTIONS_H_
