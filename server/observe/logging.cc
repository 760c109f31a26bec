// SPDX-License-Identifier: Apache-2.0
#include "server/observe/logging.h"

#include <spdlog/logger.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/errors.h"
#include "base/text.h"
#include "server/observe/log_sink.h"

namespace ulfd::server {
namespace {

// By LogLevel.
constexpr absl::string_view kLevelNames[] = {"debug", "info", "warning", "error"};
constexpr spdlog::level::level_enum kSpdLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                    spdlog::level::warn, spdlog::level::err};

absl::string_view Name(LogLevel level) { return kLevelNames[static_cast<size_t>(level)]; }

spdlog::level::level_enum SpdLevel(LogLevel level) {
  return kSpdLevels[static_cast<size_t>(level)];
}

// Whatever ends a word or, as commands of a terminal do, is no text.
bool NeedsQuotes(absl::string_view value) {
  const auto plain = [](unsigned char c) { return c > ' ' && c < 0x7f && c != '=' && c != '"'; };
  return value.empty() || !std::all_of(value.begin(), value.end(), plain);
}

std::string TextLine(LogLevel level, absl::string_view time, absl::string_view message,
                     Logger::Fields fields) {
  std::string line = absl::StrFormat("%s %-7s %s", time, Name(level), message);
  for (const LogField& field : fields) {
    if (field.quoted && NeedsQuotes(field.value)) {
      absl::StrAppend(&line, " ", field.key, "=\"", JsonEscape(field.value), "\"");
    } else {
      absl::StrAppend(&line, " ", field.key, "=", field.value);
    }
  }
  return line;
}

std::string JsonLine(LogLevel level, absl::string_view time, absl::string_view message,
                     Logger::Fields fields) {
  std::string line = absl::StrCat("{\"time\":\"", time, "\",\"level\":\"", Name(level),
                                  "\",\"message\":\"", JsonEscape(message), "\"");
  for (const LogField& field : fields) {
    const absl::string_view quote = field.quoted ? "\"" : "";
    absl::StrAppend(&line, ",\"", JsonEscape(field.key), "\":", quote,
                    field.quoted ? JsonEscape(field.value) : field.value, quote);
  }
  return line + "}";
}

}  // namespace

LogField::LogField(absl::string_view k, double v)
    : key(k), value(absl::StrFormat("%.6g", v)), quoted(!std::isfinite(v)) {}

std::string JsonEscape(absl::string_view text) {
  std::string out;
  for (size_t good = 0; !text.empty(); text.remove_prefix(std::min(good + 1, text.size()))) {
    good = Utf8Bytes(text);
    for (size_t i = 0; i < good; ++i) {
      const char c = text[i];
      if (c == '\xc2' && static_cast<unsigned char>(text[i + 1]) < 0xa0) {  // Commands, too.
        absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned char>(text[++i]));
      } else if (c == '"' || c == '\\') {
        out += {'\\', c};
      } else if (c == '\n') {
        out += "\\n";
      } else if (c == '\t') {
        out += "\\t";
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
        absl::StrAppendFormat(&out, "\\u%04x", c);
      } else {
        out += c;
      }
    }
    if (good < text.size()) out += '?';
  }
  return out;
}

Logger::Logger(LogLevel level, LogFormat format)
    : Logger(level, format, std::make_shared<LogSink>(STDERR_FILENO)) {}

Logger::Logger(LogLevel level, LogFormat format, std::shared_ptr<spdlog::sinks::sink> sink)
    : level_(level),
      format_(format),
      logger_(std::make_unique<spdlog::logger>("ulfd", std::move(sink))) {
  logger_->set_pattern("%v");  // The line is made here.
  logger_->set_level(SpdLevel(level));
  logger_->flush_on(spdlog::level::debug);
}

Logger::~Logger() = default;

int64_t Logger::dropped() const {
  const auto* const sink = dynamic_cast<const LogSink*>(logger_->sinks().front().get());
  return sink == nullptr ? 0 : sink->dropped();
}

void Logger::Log(LogLevel level, absl::string_view message, Fields fields) {
  if (level < level_) return;
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  const std::string line = format_ == LogFormat::kJson ? JsonLine(level, time, message, fields)
                                                       : TextLine(level, time, message, fields);
  logger_->log(SpdLevel(level), spdlog::string_view_t(line.data(), line.size()));
}

absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view word) {
  if (word == "debug") return LogLevel::kDebug;
  if (word == "info") return LogLevel::kInfo;
  if (word == "warning") return LogLevel::kWarning;
  if (word == "error") return LogLevel::kError;
  return InvalidArgument("\"", word, "\", want debug, info, warning or error");
}

absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view word) {
  if (word == "text") return LogFormat::kText;
  if (word == "json") return LogFormat::kJson;
  return InvalidArgument("\"", word, "\", want text or json");
}

}  // namespace ulfd::server
