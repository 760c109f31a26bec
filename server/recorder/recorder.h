// Recorder: a log of calls and scores on disk, a sample and the slowest, bounded in memory, in disk
// space and in what it costs the calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RECORDER_RECORDER_H_
#define ULFD_SERVER_RECORDER_RECORDER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/recording/recording_file.h"
#include "proto/recording.pb.h"
#include "server/scheduler/clock.h"

namespace ulfd::server {

// As ulfd.config.v1.Recorder has them, with their defaults.
struct RecorderOptions {
  std::string directory;  // Empty: no recorder.
  double share = 0;
  std::map<std::string, double> model_shares;  // Where they differ from `share`.
  int max_per_second = 0;
  int slowest_per_minute = 0;
  int max_file_bytes = 0;
  int max_files = 0;
  int max_queued_bytes = 0;
  std::chrono::milliseconds retry_interval{0};
};

// Why a call that had been chosen was not recorded.
enum class RecorderDrop : uint8_t {
  kRate,       // More than max_per_second.
  kQueueFull,  // The disk is slower than the calls.
  kTooLarge,   // Larger than a file.
  kDisk,       // Writing failed, or had failed less than retry_interval ago.
};
inline constexpr int kRecorderDrops = 4;

struct RecorderStats {
  int64_t records = 0, bytes = 0;  // Written.
  std::array<int64_t, kRecorderDrops> dropped{};
  int64_t queued_bytes = 0;
  bool failing = false;  // Writing failed, and has not succeeded since.
};

// Thread-safe.  Calls are chosen and handed over on the threads that answer them, which takes a
// short lock and never waits for the disk; a low-priority thread writes.
class Recorder {
 public:
  // What the operator should know: writing failed (with the error), or works again (OK).  Called
  // on the writing thread, once per change.
  using OnChange = std::function<void(const absl::Status& status, int64_t lost_records)>;

  // Creates the directory.  UNAVAILABLE if that is not possible.  `clock` is borrowed.
  static absl::StatusOr<std::unique_ptr<Recorder>> Create(RecorderOptions options,
                                                          const Clock& clock, OnChange on_change);
  // The same without a thread: WriteQueued does its work.  For tests.
  static absl::StatusOr<std::unique_ptr<Recorder>> CreateWithoutThread(RecorderOptions options,
                                                                       const Clock& clock,
                                                                       OnChange on_change);
  // Finish.
  ~Recorder();

  // Writes what is queued, and nothing of what is added from now on.
  void Finish();

  // Whether this call of the model is to be recorded; counts it as dropped if there were too many
  // in this second.
  bool Choose(const std::string& model);
  // Other RecorderOptions::model_shares, from the next call on.
  void SetModelShares(std::map<std::string, double> shares);
  // Queues the record of a chosen call, or drops it.
  void Add(recording::v1::Recording record);
  // Whether a call of the model that took so long is one of the slowest of this minute so far.
  bool AmongSlowest(const std::string& model, int64_t duration_us);
  // Keeps the record of such a call until the minute is over or others were slower.
  void AddSlow(recording::v1::Recording record);
  RecorderStats Stats() const;

  // One step of the thread.  Not thread-safe.
  void WriteQueued();

 private:
  // The file that the records of a folder go to.
  struct ModelFiles {
    std::unique_ptr<recording::RecordingWriter> writer;
    int64_t next_number = -1;        // -1: the folder has not been looked at.
    std::vector<std::string> paths;  // Oldest first.
  };
  struct Queued {
    recording::v1::Recording record;
    bool slow = false;
  };

  Recorder(RecorderOptions options, const Clock& clock, OnChange on_change);
  void Run();
  bool BelowShare(const std::string& model);
  void Drop(RecorderDrop why) { dropped_[static_cast<size_t>(why)].fetch_add(1); }
  int64_t Minute() const;
  // The share of the model's own settings; nullopt: it has none.
  std::optional<double> OwnShare(const std::string& model);
  bool FitsIntoFile(int64_t record_bytes) const;
  // Queues what was kept of a minute that is over.
  void EndMinute() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Write(const Queued& queued);
  absl::Status Append(const std::string& folder, const std::string& payload);
  absl::Status NextFile(const std::string& folder, ModelFiles& files);
  void SetStatus(const absl::Status& status);

  const RecorderOptions options_;  // Its model_shares are those of the beginning.
  const Clock& clock_;
  const OnChange on_change_;

  std::atomic<int64_t> calls_seen_{0};
  std::atomic<int64_t> records_{0}, bytes_{0};
  std::array<std::atomic<int64_t>, kRecorderDrops> dropped_{};
  std::atomic<bool> failing_{false};
  // Of the slowest calls that are kept; how long one took at most that has no place among them.
  std::atomic<int64_t> slow_minute_{-1}, least_slow_us_{0};

  Mutex shares_mu_;  // A leaf.
  std::map<std::string, double> model_shares_ ABSL_GUARDED_BY(shares_mu_);
  mutable Mutex mu_;
  CondVar work_;
  std::vector<Queued> queue_ ABSL_GUARDED_BY(mu_);
  std::vector<recording::v1::Recording> slow_ ABSL_GUARDED_BY(mu_);  // The slowest first.
  int64_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;           // Of what is being written, too.
  int64_t slow_bytes_ ABSL_GUARDED_BY(mu_) = 0;             // At most max_queued_bytes as well.
  int64_t second_ ABSL_GUARDED_BY(mu_) = 0;                 // The last one.
  std::map<std::string, int> chosen_ ABSL_GUARDED_BY(mu_);  // In it, by model.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  // Used by the writing thread alone.
  std::map<std::string, ModelFiles> files_;  // By folder.
  TimePoint retry_at_{};
  int64_t lost_ = 0;  // Since writing failed.

  std::thread thread_;  // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RECORDER_RECORDER_H_
