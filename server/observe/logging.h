// Structured logs on standard error: one event per line, as text or as a JSON object, with named
// fields.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_LOGGING_H_
#define ULFD_SERVER_OBSERVE_LOGGING_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace spdlog {
class logger;
namespace sinks {
class sink;
}  // namespace sinks
}  // namespace spdlog

namespace ulfd::server {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };
enum class LogFormat : uint8_t { kText, kJson };

// One named value of an event.  Borrows `key`.
struct LogField {
  LogField(absl::string_view k, absl::string_view v) : key(k), value(v), quoted(true) {}
  LogField(absl::string_view k, const char* v) : LogField(k, absl::string_view(v)) {}
  LogField(absl::string_view k, const std::string& v) : LogField(k, absl::string_view(v)) {}
  LogField(absl::string_view k, int64_t v) : key(k), value(std::to_string(v)) {}
  LogField(absl::string_view k, int v) : LogField(k, static_cast<int64_t>(v)) {}
  LogField(absl::string_view k, double v);
  absl::string_view key;
  std::string value;
  bool quoted = false;
};

// Thread-safe; a line is written whole, or dropped where nobody reads (LogSink).
class Logger {
 public:
  // To standard error.
  Logger(LogLevel level, LogFormat format);
  // To a sink of the caller's, for tests.
  Logger(LogLevel level, LogFormat format, std::shared_ptr<spdlog::sinks::sink> sink);
  ~Logger();
  // Lines that were dropped.
  int64_t dropped() const;

  using Fields = std::initializer_list<LogField>;
  void Debug(absl::string_view message, Fields fields = {}) {
    Log(LogLevel::kDebug, message, fields);
  }
  void Info(absl::string_view message, Fields fields = {}) {
    Log(LogLevel::kInfo, message, fields);
  }
  void Warning(absl::string_view message, Fields fields = {}) {
    Log(LogLevel::kWarning, message, fields);
  }
  void Error(absl::string_view message, Fields fields = {}) {
    Log(LogLevel::kError, message, fields);
  }

 private:
  void Log(LogLevel level, absl::string_view message, Fields fields);
  const LogLevel level_;
  const LogFormat format_;
  const std::unique_ptr<spdlog::logger> logger_;
};

// What goes between the quotes of a JSON string: control characters, quotes and backslashes
// escaped; bytes that are not UTF-8 replaced by "?".
std::string JsonEscape(absl::string_view text);

// INVALID_ARGUMENT: `"loud", want debug, info, warning or error`.
absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view word);
// INVALID_ARGUMENT: `"xml", want text or json`.
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view word);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_LOGGING_H_
