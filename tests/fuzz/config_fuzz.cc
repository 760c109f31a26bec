// The daemon's configuration file.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "proto/server_config.pb.h"
#include "server/config/options.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/proto_mutator.h"

ULFD_FUZZ_PROTO(ulfd::config::v1::ServerConfig, ulfd::fuzz::ProtoForm::kText, {})

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(ulfd::fuzz::AsText(data, size));
  const auto options = ulfd::server::ReadConfig(text, "ulfd.textproto");
  ulfd::fuzz::CheckMessage(options.status());
  if (!options.ok()) return 0;
  // What was read, defaults and all, is a good file, and says the same.
  const std::string whole = options->settings.DebugString();
  const auto again = ulfd::server::ReadConfig(whole, "again.textproto");
  if (!again.ok() || again->settings.DebugString() != whole) {
    ulfd::fuzz::Fail("a configuration that is not what it says");
  }
  return 0;
}
