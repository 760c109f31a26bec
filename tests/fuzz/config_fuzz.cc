// The daemon's configuration file.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "proto/server_config.pb.h"
#include "server/config/options.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/proto_mutator.h"

ULFD_FUZZ_PROTO(ulfd::config::v1::ServerConfig, ulfd::fuzz::ProtoForm::kText, {})

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulfd::server;
  const std::string text(ulfd::fuzz::AsText(data, size));
  Options options;
  const absl::Status status = ReadConfig(text, "ulfd.textproto", options);
  ulfd::fuzz::CheckMessage(status);
  if (!status.ok()) return 0;
  const absl::Status same = CheckOnlyModelsDiffer(text, text, "ulfd.textproto");
  if (!same.ok()) ulfd::fuzz::Fail("a configuration that differs from itself");
  return 0;
}
