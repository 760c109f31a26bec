// One version directory over time: whether it has settled, whether its content is served, refused
// or worth a load.  Pure state, no I/O, no thread: the manager feeds it what it saw and asks what
// to do.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_VERSION_WATCH_H_
#define ULFD_SERVER_MODELS_VERSION_WATCH_H_

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/directory/model_directory.h"
#include "server/models/model_types.h"
#include "server/models/operator_state.h"
#include "server/models/quarantine.h"

namespace ulfd::server {

// When content is due for a load:
//  - it differs from what is served, was not refused, and no backoff is running; and
//  - either it is committed: _SUCCESS exists, and the content came as a whole (a directory seen for
//    the first time, one that was swapped in by rename, or a _SUCCESS that was not there before);
//  - or nothing in it has changed for settle_time.  What is seen for the first time counts from its
//    latest change, so that a directory that has lain there for long, or was moved in complete,
//    need not wait.  An in-place edit beside an old _SUCCESS must settle like any other.
//
// Deltas of what serves are due at once: their _SUCCESS came last.  One that is refused is not
// tried again until it changes or another one is applied.
class VersionWatch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Options {
    std::chrono::milliseconds settle_time, retry_backoff;
  };
  static constexpr std::chrono::milliseconds kLongestBackoff{60'000};

  explicit VersionWatch(const Options& options) : options_(options) {}

  // What a look at the directory found.  `age`: time since its latest change by the file system's
  // clock.
  void Seen(const engine::DirectoryState& state, TimePoint now, std::chrono::nanoseconds age);
  // The directory does not exist.
  void Gone(TimePoint now);
  // The directory cannot be looked at: everything stays as it is.
  void Unreadable(const absl::Status& why) { unreadable_ = why; }

  bool Due(TimePoint now) const;
  // When it becomes due if nothing changes; nullopt: not without a change.
  std::optional<TimePoint> DueAt() const;

  // Complete deltas that what serves has not and that were not refused, ascending.
  std::vector<engine::EpochMark> DueEpochs() const;
  // All up to the limit: for a load of the whole directory.
  std::vector<engine::EpochMark> WantedEpochs() const;
  // Whether the deltas that are due, if any, go on top of what serves.
  bool ServesBase() const { return serving_ != nullptr && !differs() && !AboveLimit(*serving_); }
  // Deltas above this epoch are not served, as long as the content below them stays the same.
  void LimitEpoch(int64_t epoch);
  void Restore(EpochLimit limit) { epoch_limit_ = std::move(limit); }
  void EndEpochLimit() { epoch_limit_.reset(); }
  const std::optional<EpochLimit>& epoch_limit() const { return epoch_limit_; }

  // The life of one load: started, then one of the others.
  void LoadStarted() { loading_ = true; }
  // Nothing was tried; what is there has to be looked at again.
  void LoadAbandoned() { loading_ = false; }
  // `content`: LoadOutcome::content.
  void Published(const std::string& fingerprint, ModelHandle handle, const std::string& content);
  // The same content in another form.
  void Replaced(ModelHandle handle) { serving_ = std::move(handle); }
  // Content errors hold until the content changes, others until a backoff ends, which doubles from
  // one failure to the next.
  void Refused(const std::string& fingerprint, const absl::Status& error, TimePoint now);
  // What deltas were refused with.  Errors that say nothing of the content count as in Refused.
  void EpochsRefused(const std::vector<std::pair<engine::EpochMark, absl::Status>>& epochs,
                     TimePoint now);
  // The content seen last, which was refused or served, is in quarantine.
  void Quarantined(QuarantinedContent content) { quarantine_ = std::move(content); }
  // An operator does not want the content that serves, nor what is seen now: it is to be replaced,
  // and not tried again until it changes.
  void Reject(const absl::Status& why);
  // Forgets refusals and rejections: the content may be tried again.
  void Readmit();
  // The content changed under the load, whose result was thrown away.
  void ChangedDuringLoad(const engine::DirectoryState& state, TimePoint now,
                         std::chrono::nanoseconds age, const absl::Status& error);
  // Takes the served content out of service.
  ModelHandle Withdraw();

  bool present() const { return present_; }
  // No directory for settle_time: more than the moment between two steps of a replacement.
  bool GoneForGood(TimePoint now) const {
    return !present_ && unreadable_.ok() && now - gone_since_ >= options_.settle_time;
  }
  const absl::Status& unreadable() const { return unreadable_; }
  bool loading() const { return loading_; }
  const ModelHandle& serving() const { return serving_; }
  // Serves, and nothing newer was seen.
  bool serves_newest() const { return ServesBase() && DueEpochs().empty(); }
  bool refused() const { return refused_; }
  bool rejected() const { return rejected_; }
  const std::optional<QuarantinedContent>& quarantine() const { return quarantine_; }
  const std::string& fingerprint() const { return fingerprint_; }
  // A delta that is there and does not serve was refused.
  bool delta_refused() const { return ServesBase() && !EpochError().empty(); }
  // State and error of a VersionStatus.
  VersionState state() const;
  std::string error() const;

 private:
  bool AboveLimit(const ServedModel& model) const {
    return epoch_limit_.has_value() && !model.epochs.empty() &&
           model.epochs.back().epoch > epoch_limit_->epoch;
  }
  std::optional<TimePoint> EpochsDueAt() const;
  std::string EpochError() const;
  void BackOff(TimePoint now);
  bool differs() const { return present_ && fingerprint_ != served_fingerprint_; }

  Options options_;
  bool present_ = false;
  TimePoint gone_since_;
  absl::Status unreadable_;
  std::string fingerprint_;  // As last seen.
  uint64_t device_ = 0, inode_ = 0;
  bool has_success_ = false;
  bool committed_ = false;  // See above.
  TimePoint changed_at_;
  bool loading_ = false;

  absl::Status failure_;   // Of the content seen last; OK if it was not tried.
  bool refused_ = false;   // `failure_` holds until the content changes.
  bool rejected_ = false;  // By an operator; implies refused_.
  std::optional<QuarantinedContent> quarantine_;  // Of the content seen last.
  int failures_ = 0;
  TimePoint retry_at_;

  std::vector<engine::EpochMark> epochs_;  // As last seen.
  std::map<engine::EpochMark, absl::Status> refused_epochs_;
  absl::Status epoch_failure_;  // Of the delta tried last; OK if it is served.
  std::optional<EpochLimit> epoch_limit_;

  ModelHandle serving_;
  std::string served_fingerprint_, served_content_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_VERSION_WATCH_H_
