// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>
#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/observe/call_log.h"

namespace ulfd::server {
namespace {

// gRPC takes a function without an argument of ours.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<Logger*> current{nullptr};

LineLimit& Limit() {
  static LineLimit limit(20);
  return limit;
}

// The address in a message, as gRPC writes it ("ipv4:10.0.0.1:4242"); empty if there is none.
absl::string_view PeerIn(absl::string_view message) {
  for (const absl::string_view scheme : {"ipv4:", "ipv6:", "unix:"}) {
    const size_t begin = message.find(scheme);
    if (begin == absl::string_view::npos) continue;
    const absl::string_view rest = message.substr(begin);
    const absl::string_view word = rest.substr(0, rest.find_first_of(" ,;\"'}"));
    return absl::StripSuffix(word, ":");
  }
  return "";
}

void Log(gpr_log_func_args* args) {
  Logger* const logger = current.load();
  int64_t left_out = 0;
  if (logger == nullptr || !Limit().Take(std::chrono::steady_clock::now(), left_out)) return;
  const char* const slash = std::strrchr(args->file, '/');
  const std::string where =
      absl::StrCat(slash == nullptr ? args->file : slash + 1, ":", args->line);
  const absl::string_view peer = PeerIn(args->message);
  const Logger::Fields fields = {
      {"text", args->message}, {"peer", peer}, {"source", where}, {"left_out", left_out}};
  switch (args->severity) {
    case GPR_LOG_SEVERITY_DEBUG:
      return logger->Debug("gRPC", fields);
    case GPR_LOG_SEVERITY_INFO:
      return logger->Info("gRPC", fields);
    case GPR_LOG_SEVERITY_ERROR:
      return logger->Warning("gRPC", fields);  // Of a connection mostly, whose client hears of it.
  }
}

}  // namespace

GrpcLog::GrpcLog(Logger& logger) {
  current.store(&logger);
  gpr_set_log_function(&Log);
}

GrpcLog::~GrpcLog() {
  gpr_set_log_function(nullptr);
  current.store(nullptr);
}

}  // namespace ulfd::server
