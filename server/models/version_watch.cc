// SPDX-License-Identifier: Apache-2.0
#include "server/models/version_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/directory/load_reason.h"

namespace ulfd::server {

void VersionWatch::Seen(const engine::DirectoryState& state, TimePoint now,
                        std::chrono::nanoseconds age) {
  const bool arrived = !present_ || state.device != device_ || state.inode != inode_;
  const bool marked = state.has_success && !has_success_;
  const bool changed = arrived || state.fingerprint != fingerprint_;
  present_ = true;
  unreadable_ = absl::OkStatus();
  device_ = state.device;
  inode_ = state.inode;
  has_success_ = state.has_success;
  epochs_ = state.epochs;
  // A mark that went, or was made anew, never comes back.
  std::erase_if(refused_epochs_, [this](const auto& refused) {
    return !std::binary_search(epochs_.begin(), epochs_.end(), refused.first);
  });
  if (!changed) return;
  const bool same_content = state.fingerprint == fingerprint_;
  fingerprint_ = state.fingerprint;
  committed_ = state.has_success && (arrived || marked);
  // A directory that only went out of sight for a moment is judged as before.
  if (same_content) return;
  changed_at_ = now;
  if (arrived) {
    changed_at_ -= std::chrono::duration_cast<TimePoint::duration>(std::clamp(
        age, std::chrono::nanoseconds(0), std::chrono::nanoseconds(options_.settle_time)));
  }
  Readmit();
}

void VersionWatch::Readmit() {
  failure_ = absl::OkStatus();
  refused_ = rejected_ = false;
  failures_ = 0;
  quarantine_.reset();
  refused_epochs_.clear();
  epoch_failure_ = absl::OkStatus();
}

void VersionWatch::LimitEpoch(int64_t epoch) {
  epoch_limit_ = {epoch, differs() ? "" : served_content_};
}

std::vector<engine::EpochMark> VersionWatch::WantedEpochs() const {
  std::vector<engine::EpochMark> wanted;
  for (const engine::EpochMark& epoch : epochs_) {
    if (!epoch_limit_.has_value() || epoch.epoch <= epoch_limit_->epoch) wanted.push_back(epoch);
  }
  return wanted;
}

std::vector<engine::EpochMark> VersionWatch::DueEpochs() const {
  std::vector<engine::EpochMark> due;
  if (!ServesBase()) return due;
  for (engine::EpochMark& epoch : WantedEpochs()) {
    const bool served = std::binary_search(serving_->epochs.begin(), serving_->epochs.end(), epoch);
    if (!served && !refused_epochs_.contains(epoch)) due.push_back(std::move(epoch));
  }
  return due;
}

std::optional<VersionWatch::TimePoint> VersionWatch::EpochsDueAt() const {
  if (serving_ == nullptr || !present_ || rejected_) return std::nullopt;
  if (ServesBase() && DueEpochs().empty()) return std::nullopt;
  return failures_ > 0 ? retry_at_ : TimePoint::min();
}

void VersionWatch::Reject(const absl::Status& why) {
  failure_ = why;
  refused_ = rejected_ = true;
}

void VersionWatch::Gone(TimePoint now) {
  if (present_) gone_since_ = now;
  present_ = false;
  unreadable_ = absl::OkStatus();
}

std::optional<VersionWatch::TimePoint> VersionWatch::DueAt() const {
  if (loading_) return std::nullopt;
  if (!differs()) return EpochsDueAt();
  if (refused_) return std::nullopt;
  const TimePoint settled = committed_ ? TimePoint::min() : changed_at_ + options_.settle_time;
  return failures_ > 0 ? std::max(settled, retry_at_) : settled;
}

bool VersionWatch::Due(TimePoint now) const {
  const std::optional<TimePoint> at = DueAt();
  return at.has_value() && *at <= now;
}

void VersionWatch::Published(const std::string& fingerprint, ModelHandle handle,
                             const std::string& content) {
  loading_ = false;
  served_fingerprint_ = fingerprint;
  serving_ = std::move(handle);
  if (!content.empty()) served_content_ = content;
  if (epoch_limit_.has_value()) {
    if (epoch_limit_->content.empty()) epoch_limit_->content = served_content_;
    if (epoch_limit_->content != served_content_) EndEpochLimit();
  }
  if (fingerprint != fingerprint_) return;  // A look saw newer content meanwhile.
  std::map<engine::EpochMark, absl::Status> refused = std::move(refused_epochs_);
  Readmit();
  // Those that may follow now are tried again.
  const int64_t epoch = serving_->epochs.empty() ? 0 : serving_->epochs.back().epoch;
  std::erase_if(refused, [&](const auto& other) { return other.first.epoch > epoch; });
  refused_epochs_ = std::move(refused);
}

void VersionWatch::EpochsRefused(
    const std::vector<std::pair<engine::EpochMark, absl::Status>>& epochs, TimePoint now) {
  loading_ = false;
  for (const auto& [epoch, error] : epochs) {
    epoch_failure_ = error;
    if (engine::IsContentError(error)) {
      refused_epochs_[epoch] = error;
    } else {
      BackOff(now);
    }
  }
}

void VersionWatch::Refused(const std::string& fingerprint, const absl::Status& error,
                           TimePoint now) {
  loading_ = false;
  if (fingerprint != fingerprint_) return;
  failure_ = error;
  refused_ = engine::IsContentError(error);
  BackOff(now);
}

void VersionWatch::BackOff(TimePoint now) {
  const int doublings = std::min(failures_++, 16);
  retry_at_ = now + std::min(options_.retry_backoff * (int64_t{1} << doublings), kLongestBackoff);
}

void VersionWatch::ChangedDuringLoad(const engine::DirectoryState& state, TimePoint now,
                                     std::chrono::nanoseconds age, const absl::Status& error) {
  loading_ = false;
  Seen(state, now, age);
  failure_ = error;
}

ModelHandle VersionWatch::Withdraw() {
  served_fingerprint_.clear();
  return std::exchange(serving_, nullptr);
}

VersionState VersionWatch::state() const {
  if (loading_) return VersionState::kLoading;
  if (!unreadable_.ok()) return VersionState::kFailed;
  if (!failure_.ok() && present_) return VersionState::kFailed;
  return serving_ != nullptr ? VersionState::kServing : VersionState::kWaiting;
}

std::string VersionWatch::EpochError() const {
  if (epoch_failure_.ok()) return "";
  const std::vector<engine::EpochMark>& served = serving_->epochs;
  bool any = false;
  for (const engine::EpochMark& epoch : epochs_) {
    if (std::binary_search(served.begin(), served.end(), epoch)) continue;
    any = true;
    // Those after a delta that was refused are refused because they follow it.
    const auto refused = refused_epochs_.find(epoch);
    const bool follows = served.empty() || epoch.epoch > served.back().epoch;
    if (follows && refused != refused_epochs_.end()) return std::string(refused->second.message());
  }
  // Of deltas that are gone nothing is said.
  return any ? std::string(epoch_failure_.message()) : "";
}

std::string VersionWatch::error() const {
  if (!unreadable_.ok()) return std::string(unreadable_.message());
  if (!present_) {
    return serving_ == nullptr
               ? "its directory is gone"
               : "its directory is gone; it serves until another version replaces it";
  }
  if (!failure_.ok()) return std::string(failure_.message());
  if (!differs()) {
    std::string error = EpochError();
    const bool held = error.empty() && epoch_limit_.has_value() && !epochs_.empty() &&
                      epochs_.back().epoch > epoch_limit_->epoch;
    if (!held) return error;
    return absl::StrCat("epochs above ", epoch_limit_->epoch, " stay out since a roll-back");
  }
  if (loading_) return "";
  const absl::string_view kind = serving_ == nullptr ? "new" : "changed";
  if (committed_) return absl::StrCat(kind, " content, waiting for its turn to be loaded");
  return absl::StrCat(kind, " content, loaded once nothing has changed for ",
                      options_.settle_time.count(), " ms",
                      has_success_ ? "" : absl::StrCat(" or ", engine::kSuccessFile, " exists"));
}

}  // namespace ulfd::server
