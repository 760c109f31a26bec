// SPDX-License-Identifier: Apache-2.0
#include "server/config/state_file.h"

#include <google/protobuf/text_format.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>

#include "absl/time/time.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/text_file.h"
#include "proto/operator_state.pb.h"
#include "server/config/settings.h"

namespace ulfd::server {
namespace {

namespace state = ulfd::state::v1;
using std::chrono::system_clock;

constexpr char kHeader[] =
    "# What operators changed of what ulfd serves.  Written by ulfd, read at its start; without "
    "this "
    "file the\n# configuration alone says what serves.\n";

constexpr int64_t kMostBytes = int64_t{1} << 20;  // What is written can be read again.

OperatorState FromMessage(const state::ModelState& model) {
  OperatorState read{.configured = model.configured(), .all_held = model.all_held()};
  if (model.relabelled()) {
    read.labels.emplace();
    for (const auto& [label, version] : model.labels()) (*read.labels)[label] = version;
  }
  read.pinned.insert(model.pinned().begin(), model.pinned().end());
  read.held.insert(model.held().begin(), model.held().end());
  for (const state::LastEpoch& last : model.last_epochs()) {
    read.last_epochs[last.version()] = {last.epoch(), last.content()};
  }
  for (const state::RejectedContent& content : model.rejected()) {
    read.rejected.push_back(
        {.content_hash = content.content_hash(),
         .version = content.version(),
         .error = RolledBack(),
         // Seconds of 64 bits are more than a time_point holds.
         .since = absl::ToChronoTime(absl::FromUnixSeconds(content.since().seconds())),
         .by_operator = true});
  }
  return read;
}

void ToMessage(const std::string& name, const OperatorState& from, state::ModelState& model) {
  model.set_name(name);
  model.set_configured(from.configured);
  model.set_relabelled(from.labels.has_value());
  if (from.labels.has_value())
    model.mutable_labels()->insert(from.labels->begin(), from.labels->end());
  model.mutable_pinned()->Add(from.pinned.begin(), from.pinned.end());
  model.mutable_held()->Add(from.held.begin(), from.held.end());
  model.set_all_held(from.all_held);
  for (const auto& [version, limit] : from.last_epochs) {
    state::LastEpoch& last = *model.add_last_epochs();
    last.set_version(version);
    last.set_epoch(limit.epoch);
    last.set_content(limit.content);
  }
  for (const QuarantinedContent& content : from.rejected) {
    state::RejectedContent& rejected = *model.add_rejected();
    rejected.set_content_hash(content.content_hash);
    rejected.set_version(content.version);
    rejected.mutable_since()->set_seconds(system_clock::to_time_t(content.since));
  }
}

}  // namespace

absl::StatusOr<OperatorStates> ReadStateFile(const std::string& path) {
  OperatorStates states;
  struct stat about {};
  if (stat(path.c_str(), &about) != 0 && errno == ENOENT) return states;
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMostBytes));
  state::OperatorState file;
  RETURN_IF_ERROR(ReadSettings(
      text, path, [](const SettingsPlace&) {}, file));
  for (const state::ModelState& model : file.models()) {
    if (!states.emplace(model.name(), FromMessage(model)).second) {
      return InvalidArgument(path, ": model ", Quote(model.name()), " is there twice");
    }
  }
  return states;
}

absl::Status WriteStateFile(const std::string& path, const OperatorStates& states) {
  state::OperatorState file;
  for (const auto& [name, model] : states) ToMessage(name, model, *file.add_models());
  std::string text;
  google::protobuf::TextFormat::PrintToString(file, &text);
  text.insert(0, kHeader);
  if (const auto bytes = static_cast<int64_t>(text.size()); bytes > kMostBytes) {
    return ResourceExhausted(path, ": would have ", bytes, " bytes, want at most ", kMostBytes);
  }
  return WriteTextFile(path, text);
}

}  // namespace ulfd::server
