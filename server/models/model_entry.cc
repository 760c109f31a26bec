// SPDX-License-Identifier: Apache-2.0
#include "server/models/model_entry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text.h"

namespace ulfd::server {
namespace {

constexpr char kHeld[] = "unloaded by an operator, until LoadModel or ReloadConfig";

// The versions that the policy or a label of the configuration names.
std::set<int64_t> NamedBy(const ModelConfig& config) {
  std::set<int64_t> named(config.policy.specific.begin(), config.policy.specific.end());
  for (const auto& [label, version] : config.labels) named.insert(version);
  return named;
}

}  // namespace

void ModelEntry::Update(const ModelScan& scan, TimePoint now,
                        std::chrono::system_clock::time_point wall_now) {
  error_.clear();
  unreadable_ = absl::OkStatus();
  if (!first_seen_.has_value()) first_seen_ = now;
  if (!scan.listing.ok()) {
    if (!absl::IsNotFound(scan.listing.status())) return Unreadable(scan.listing.status());
    error_ = Printable(scan.listing.status().message(), kMaxKeptErrorBytes);
    if (!gone_since_.has_value()) gone_since_ = now;
    for (auto& [version, watch] : versions_) watch.Gone(now);
    return;
  }
  gone_since_.reset();
  left_out_.clear();
  if (const size_t left_out = scan.listing->left_out; left_out > 0) {
    left_out_ = absl::StrCat(left_out, " older versions are not looked at, only the newest ",
                             kMaxVersions, " and those that somebody names");
    error_ = left_out_;
  }
  for (auto& [version, watch] : versions_) {
    if (!scan.versions.contains(version)) watch.Gone(now);
  }
  for (const auto& [version, state] : scan.versions) {
    // Only "not there" says something about the content.
    if (absl::IsNotFound(state.status())) {
      if (VersionWatch* watch = FindWatch(version); watch != nullptr) watch->Gone(now);
      continue;
    }
    VersionWatch& watch = versions_.try_emplace(version, options_).first->second;
    if (const auto limit = restored_epochs_.extract(version); !limit.empty()) {
      watch.Restore(limit.mapped());
    }
    if (state.ok()) {
      watch.Seen(*state, now, wall_now - state->newest_change);
    } else {
      watch.Unreadable(Clip(state.status(), kMaxKeptErrorBytes));
    }
  }
  if (scan.listing->versions.empty()) {
    error_ = absl::StrCat("no version directory (a positive whole number) in ", config_.base_path);
    if (!scan.listing->ignored.empty()) {
      const auto& ignored = scan.listing->ignored;
      absl::StrAppend(&error_,
                      "; ignored: ", Printable(absl::StrJoin(ignored, ", "), kMaxKeptErrorBytes),
                      scan.listing->ignored_more ? ", ..." : "");
    }
  }
}

void ModelEntry::Unreadable(const absl::Status& why) {
  unreadable_ = Clip(why, kMaxKeptErrorBytes);
  error_ = std::string(unreadable_.message());
}

VersionWatch* ModelEntry::FindWatch(int64_t version) {
  const auto found = versions_.find(version);
  return found == versions_.end() ? nullptr : &found->second;
}

std::set<int64_t> ModelEntry::NamedVersions() const {
  std::set<int64_t> named = NamedBy(config_);
  named.insert(pinned_.begin(), pinned_.end());
  named.insert(held_.begin(), held_.end());
  for (const auto& [version, watch] : versions_) {
    if (watch.serving() != nullptr || watch.loading()) named.insert(version);
  }
  return named;
}

bool ModelEntry::Named(int64_t version) const {
  if (Held(version)) return false;
  return pinned_.contains(version) ||
         std::any_of(config_.labels.begin(), config_.labels.end(),
                     [&](const auto& label) { return label.second == version; });
}

std::set<int64_t> ModelEntry::WantedByPolicy(TimePoint now) const {
  std::set<int64_t> wanted;
  if (!config_.policy.specific.empty()) {
    for (const int64_t version : config_.policy.specific) {
      const auto found = versions_.find(version);
      const bool rejected = found != versions_.end() && found->second.rejected();
      if (!Held(version) && !rejected) wanted.insert(version);
    }
    return wanted;
  }
  for (auto it = versions_.rbegin(); it != versions_.rend(); ++it) {
    if (static_cast<int>(wanted.size()) == config_.policy.latest) break;
    if (Held(it->first) || it->second.rejected()) continue;
    if (!it->second.GoneForGood(now)) wanted.insert(it->first);
  }
  return wanted;
}

std::vector<int64_t> ModelEntry::Wanted(TimePoint now) const {
  std::set<int64_t> wanted = WantedByPolicy(now);
  for (const auto& [label, version] : config_.labels) wanted.insert(version);
  for (const int64_t version : pinned_) wanted.insert(version);
  std::erase_if(wanted, [&](int64_t version) { return Held(version); });
  return {wanted.begin(), wanted.end()};
}

void ModelEntry::Pin(int64_t version, TimePoint now) {
  EndHold(version);
  if (!WantedByPolicy(now).contains(version)) pinned_.insert(version);
}

void ModelEntry::EndHold(int64_t version) {
  held_.erase(version);
  if (!all_held_) return;
  // The model as a whole was held: the others still are.
  all_held_ = false;
  for (const auto& [other, watch] : versions_) {
    if (other != version) held_.insert(other);
  }
}

void ModelEntry::Hold(int64_t version) {
  pinned_.erase(version);
  held_.insert(version);
}

void ModelEntry::HoldAll() {
  pinned_.clear();
  all_held_ = true;
}

void ModelEntry::EndHolds() {
  held_.clear();
  all_held_ = false;
}

OperatorState ModelEntry::operator_state() const {
  ModelConfig as_configured = config_;
  as_configured.labels = configured_labels_;
  OperatorState state{.configured = ConfiguredVersions(as_configured),
                      .pinned = pinned_,
                      .held = held_,
                      .all_held = all_held_,
                      .last_epochs = restored_epochs_};
  if (config_.labels != configured_labels_) state.labels = config_.labels;
  for (const auto& [hash, content] : quarantine_.contents()) {
    if (content.by_operator) state.rejected.push_back(content);
  }
  for (const auto& [version, watch] : versions_) {
    if (watch.epoch_limit().has_value()) state.last_epochs[version] = *watch.epoch_limit();
  }
  return state;
}

void ModelEntry::Restore(const OperatorState& state) {
  if (state.labels.has_value()) config_.labels = *state.labels;
  pinned_ = state.pinned;
  held_ = state.held;
  all_held_ = state.all_held;
  restored_epochs_ = state.last_epochs;
  for (const QuarantinedContent& content : state.rejected) quarantine_.Add(content);
}

void ModelEntry::Reconfigure(ModelConfig config, bool configured) {
  config_ = std::move(config);
  configured_labels_ = config_.labels;
  configured_ = configured;
  pinned_.clear();
  EndHolds();
}

bool ModelEntry::Differs(const ModelConfig& config) const {
  return config_ != config || !pinned_.empty() || !held_.empty() || all_held_;
}

void ModelEntry::NoteDefault(int64_t version) {
  constexpr size_t kMaxDefaults = 16;
  if (!defaults_.empty() && defaults_.back() == version) return;
  // Going back is no news: else the next roll-back would lead to where the first one came from.
  const auto before = std::find(defaults_.begin(), defaults_.end(), version);
  if (before != defaults_.end()) {
    defaults_.erase(before + 1, defaults_.end());
    return;
  }
  defaults_.push_back(version);
  if (defaults_.size() > kMaxDefaults) defaults_.erase(defaults_.begin());
}

std::optional<int64_t> ModelEntry::Previous() const {
  const auto usable = [&](int64_t version) {
    const auto found = versions_.find(version);
    if (found == versions_.end() || Held(version)) return false;
    return found->second.present() || found->second.serving() != nullptr;
  };
  if (defaults_.empty()) return std::nullopt;
  for (size_t i = defaults_.size() - 1; i-- > 0;) {
    if (usable(defaults_[i])) return defaults_[i];
  }
  for (auto it = versions_.rbegin(); it != versions_.rend(); ++it) {
    if (it->first < defaults_.back() && usable(it->first) && !it->second.refused()) {
      return it->first;
    }
  }
  return std::nullopt;
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
    if (!watch.Due(now) || Held(version)) continue;
    if (wanted.contains(version) || Named(version) || watch.serving() != nullptr) return version;
    if (may_fall_back && !fall_back.has_value()) fall_back = version;
  }
  return fall_back;
}

bool ModelEntry::FirstLoadPending() const {
  return first_seen_.has_value() && !serves() &&
         (Loading().has_value() || NextToLoad(*first_seen_ + options_.settle_time).has_value());
}

bool ModelEntry::NamedLoadPending() const {
  const std::set<int64_t> named = NamedBy(config_);
  return std::any_of(named.begin(), named.end(), [&](int64_t version) {
    const auto found = versions_.find(version);
    if (found == versions_.end() || Held(version)) return false;
    const VersionWatch& watch = found->second;
    return watch.serving() == nullptr &&
           (watch.loading() || watch.Due(*first_seen_ + options_.settle_time));
  });
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
    if (Held(version)) continue;
    if (!wanted.contains(version) && !Named(version) && watch.serving() == nullptr &&
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
  const size_t enough = config_.policy.specific.empty() ? static_cast<size_t>(config_.policy.latest)
                                                        : std::max<size_t>(wanted.size(), 1);
  size_t serving_wanted = 0, serving_kept = 0;
  for (const auto& [version, watch] : versions_) {
    if (watch.serving() == nullptr || Held(version) || watch.rejected()) continue;
    ++serving_kept;
    serving_wanted += wanted.contains(version);
  }
  std::vector<ModelHandle> taken;
  for (auto it = versions_.begin(); it != versions_.end();) {
    auto& [version, watch] = *it;
    const bool replaced = !wanted.contains(version) && !Named(version) && serving_wanted >= enough;
    const bool rejected = watch.rejected() && serving_kept > 0;
    if (watch.serving() != nullptr && (all || Held(version) || rejected || replaced)) {
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
  ServedVersions served{.labels = config_.labels,
                        .waiting_for = error_,
                        .canary = config_.canary,
                        .shadow = config_.shadow};
  const std::vector<int64_t>& specific = config_.policy.specific;
  for (const int64_t version : specific) {
    if (versions_.contains(version)) continue;
    served.waiting_for = absl::StrCat("version ", version, ": its directory does not exist");
  }
  for (const auto& [version, watch] : versions_) {
    if (watch.serving() != nullptr) served.versions.push_back(watch.serving());
    const bool wanted = specific.empty() || Named(version) ||
                        std::find(specific.begin(), specific.end(), version) != specific.end();
    if (const std::string error = watch.error(); wanted && !error.empty()) {
      served.waiting_for = absl::StrCat("version ", version, ": ", error);
    }
  }
  if (all_held_) served.waiting_for = kHeld;
  if (!served.versions.empty()) served.waiting_for.clear();
  return served;
}

ModelStatus ModelEntry::Status(TimePoint now) const {
  ModelStatus status{.name = config_.name,
                     .required = config_.required,
                     .error = error_,
                     .unreadable = !unreadable_.ok(),
                     .canary = config_.canary,
                     .shadow = config_.shadow};
  const std::set<int64_t> wanted = WantedByPolicy(now);
  std::map<int64_t, VersionStatus> versions;
  for (const auto& [version, watch] : versions_) {
    VersionStatus& entry = versions[version];
    entry = {version, watch.state(), watch.error(), watch.serving()};
    entry.quarantine = watch.quarantine();
    entry.delta_refused = watch.delta_refused();
    if (Held(version)) {
      entry.error = kHeld;
    } else if (entry.state == VersionState::kWaiting && watch.present() &&
               !wanted.contains(version) && !Named(version)) {
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
  for (const int64_t version : NamedBy(config_)) {
    if (versions.contains(version)) continue;
    versions[version] = {
        .version = version, .error = "its directory does not exist", .missing = true};
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
