// Version policy, fall-back and unloading of one model.
// SPDX-License-Identifier: Apache-2.0
#include "server/model_entry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ulfd::server {

void ModelEntry::Update(const ModelScan& scan, TimePoint now,
                        std::chrono::system_clock::time_point wall_now) {
  error_.clear();
  if (!scan.listing.ok()) {
    error_ = std::string(scan.listing.status().message());
    if (!absl::IsNotFound(scan.listing.status())) return;
    if (!gone_since_.has_value()) gone_since_ = now;
    for (auto& [version, watch] : versions_) watch.Gone(now);
    return;
  }
  gone_since_.reset();
  for (auto& [version, watch] : versions_) {
    if (!scan.versions.contains(version)) watch.Gone(now);
  }
  for (const auto& [version, state] : scan.versions) {
    if (!state.ok()) {
      // Only "not there" says something about the content.
      if (VersionWatch* watch = FindWatch(version); watch != nullptr) {
        if (absl::IsNotFound(state.status())) watch->Gone(now);
      }
      if (!absl::IsNotFound(state.status())) error_ = std::string(state.status().message());
      continue;
    }
    VersionWatch& watch = versions_.try_emplace(version, options_).first->second;
    watch.Seen(*state, now, wall_now - state->newest_change);
  }
  if (scan.listing->versions.empty()) {
    error_ = absl::StrCat("no version directory (a positive whole number) in ", config_.base_path);
    if (!scan.listing->ignored.empty()) {
      absl::StrAppend(&error_, "; ignored: ", absl::StrJoin(scan.listing->ignored, ", "));
    }
  }
}

VersionWatch* ModelEntry::FindWatch(int64_t version) {
  const auto found = versions_.find(version);
  return found == versions_.end() ? nullptr : &found->second;
}

bool ModelEntry::Labelled(int64_t version) const {
  return std::any_of(config_.labels.begin(), config_.labels.end(),
                     [&](const auto& label) { return label.second == version; });
}

std::set<int64_t> ModelEntry::WantedByPolicy(TimePoint now) const {
  if (!config_.policy.specific.empty()) {
    return {config_.policy.specific.begin(), config_.policy.specific.end()};
  }
  std::set<int64_t> wanted;
  for (auto it = versions_.rbegin(); it != versions_.rend(); ++it) {
    if (static_cast<int>(wanted.size()) == config_.policy.latest) break;
    if (!it->second.GoneForGood(now)) wanted.insert(it->first);
  }
  return wanted;
}

bool ModelEntry::serves() const {
  return std::any_of(versions_.begin(), versions_.end(),
                     [](const auto& version) { return version.second.serving() != nullptr; });
}

std::optional<int64_t> ModelEntry::NextToLoad(TimePoint now) const {
  const std::set<int64_t> wanted = WantedByPolicy(now);
  const bool may_fall_back = config_.policy.specific.empty() && !serves();
  std::optional<int64_t> fall_back;
  for (auto it = versions_.rbegin(); it != versions_.rend(); ++it) {
    const auto& [version, watch] = *it;
    if (watch.loading()) return std::nullopt;  // One after the other: its end decides on the next.
    if (!watch.Due(now)) continue;
    if (wanted.contains(version) || Labelled(version) || watch.serving() != nullptr) return version;
    if (may_fall_back && !fall_back.has_value()) fall_back = version;
  }
  return fall_back;
}

std::optional<int64_t> ModelEntry::Loading() const {
  for (const auto& [version, watch] : versions_) {
    if (watch.loading()) return version;
  }
  return std::nullopt;
}

std::optional<ModelEntry::TimePoint> ModelEntry::NextDueAt(TimePoint now) const {
  const std::set<int64_t> wanted = WantedByPolicy(now);
  const bool may_fall_back = config_.policy.specific.empty() && !serves();
  std::optional<TimePoint> next;
  for (const auto& [version, watch] : versions_) {
    if (!wanted.contains(version) && !Labelled(version) && watch.serving() == nullptr &&
        !may_fall_back) {
      continue;
    }
    const std::optional<TimePoint> at = watch.DueAt();
    if (at.has_value() && (!next.has_value() || *at < *next)) next = at;
  }
  return next;
}

void ModelEntry::Retired(const ModelHandle& handle) {
  std::erase_if(retired_, [](const auto& weak) { return weak.expired(); });
  retired_.push_back(handle);
}

std::vector<ModelHandle> ModelEntry::TakeUnwanted(TimePoint now) {
  const std::set<int64_t> wanted = WantedByPolicy(now);
  const bool all = GoneForGood(now);
  const bool specific = !config_.policy.specific.empty();
  int serving_wanted = 0;
  for (const int64_t version : wanted) {
    const auto found = versions_.find(version);
    serving_wanted += found != versions_.end() && found->second.serving() != nullptr;
  }
  std::vector<ModelHandle> taken;
  for (auto it = versions_.begin(); it != versions_.end();) {
    auto& [version, watch] = *it;
    const bool replaced = !specific && !wanted.contains(version) && !Labelled(version) &&
                          serving_wanted >= config_.policy.latest;
    if (watch.serving() != nullptr && (all || replaced)) {
      taken.push_back(watch.Withdraw());
      Retired(taken.back());
    }
    const bool forget = !watch.loading() && watch.serving() == nullptr && watch.GoneForGood(now);
    it = forget ? versions_.erase(it) : std::next(it);
  }
  return taken;
}

bool ModelEntry::Forgettable(TimePoint now) const {
  return !configured_ && versions_.empty() && GoneForGood(now);
}

ServedVersions ModelEntry::Served() const {
  ServedVersions served{.labels = config_.labels, .waiting_for = error_};
  for (const auto& [version, watch] : versions_) {
    if (watch.serving() != nullptr) served.versions.push_back(watch.serving());
    if (const std::string error = watch.error(); !error.empty()) {
      served.waiting_for = absl::StrCat("version ", version, ": ", error);
    }
  }
  if (!served.versions.empty()) served.waiting_for.clear();
  return served;
}

ModelStatus ModelEntry::Status(TimePoint now) const {
  ModelStatus status{.name = config_.name, .required = config_.required, .error = error_};
  const std::set<int64_t> wanted = WantedByPolicy(now);
  std::map<int64_t, VersionStatus> versions;
  for (const auto& [version, watch] : versions_) {
    VersionStatus& entry = versions[version];
    entry = {version, watch.state(), watch.error(), watch.serving()};
    if (entry.state == VersionState::kWaiting && watch.present() && !wanted.contains(version) &&
        !Labelled(version)) {
      entry.error = "not wanted by the version policy";
    }
  }
  for (const std::weak_ptr<const ServedModel>& retired : retired_) {
    const ModelHandle handle = retired.lock();
    if (handle == nullptr) continue;
    VersionStatus& entry = versions[handle->version];
    entry.version = handle->version;
    if (entry.serving == nullptr && entry.state == VersionState::kWaiting) {
      entry.state = VersionState::kUnloading;
      entry.error = "unloaded; requests still hold it";
    }
  }
  std::set<int64_t> named = {config_.policy.specific.begin(), config_.policy.specific.end()};
  for (const auto& [label, version] : config_.labels) named.insert(version);
  for (const int64_t version : named) {
    if (versions.contains(version)) continue;
    versions[version] = {.version = version, .error = "its directory does not exist"};
  }
  for (auto& [version, entry] : versions) {
    for (const auto& [label, labelled] : config_.labels) {
      if (labelled == version) entry.labels.push_back(label);
    }
    status.versions.push_back(std::move(entry));
  }
  return status;
}

}  // namespace ulfd::server
