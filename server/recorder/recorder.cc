// SPDX-License-Identifier: Apache-2.0
#include "server/recorder/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "server/system/share.h"
#include "server/system/threads.h"

namespace ulfd::server {
namespace {

using recording::v1::Recording;

constexpr size_t kMostOpenFiles = 256;

int64_t SizeOf(const Recording& record) { return static_cast<int64_t>(record.ByteSizeLong()); }

bool Slower(const Recording& a, const Recording& b) { return a.duration_us() > b.duration_us(); }

}  // namespace

Recorder::Recorder(RecorderOptions options, const Clock& clock, OnChange on_change)
    : options_(std::move(options)),
      clock_(clock),
      on_change_(std::move(on_change)),
      model_shares_(options_.model_shares) {}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::CreateWithoutThread(RecorderOptions options,
                                                                        const Clock& clock,
                                                                        OnChange on_change) {
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error || access(options.directory.c_str(), W_OK | X_OK) != 0) {
    return Unavailable("recorder.directory: ", options.directory, ": cannot write there",
                       error ? absl::StrCat(": ", error.message()) : "");
  }
  return std::unique_ptr<Recorder>(new Recorder(std::move(options), clock, std::move(on_change)));
}

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Create(RecorderOptions options,
                                                           const Clock& clock, OnChange on_change) {
  ASSIGN_OR_RETURN(std::unique_ptr<Recorder> recorder,
                   CreateWithoutThread(std::move(options), clock, std::move(on_change)));
  recorder->thread_ = std::thread([r = recorder.get()] { r->Run(); });
  return recorder;
}

Recorder::~Recorder() { Finish(); }

void Recorder::Finish() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    work_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

std::optional<double> Recorder::OwnShare(const std::string& model) {
  MutexLock lock(shares_mu_);
  const auto own = model_shares_.find(model);
  return own == model_shares_.end() ? std::nullopt : std::optional(own->second);
}

bool Recorder::BelowShare(const std::string& model) {
  const double share = OwnShare(model).value_or(options_.share);
  if (share <= 0) return false;
  return IsAmongShare(calls_seen_.fetch_add(1, std::memory_order_relaxed), share);
}

void Recorder::SetModelShares(std::map<std::string, double> shares) {
  MutexLock lock(shares_mu_);
  model_shares_ = std::move(shares);
}

bool Recorder::Choose(const std::string& model) {
  if (!BelowShare(model)) return false;
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(clock_.Now().time_since_epoch()).count();
  {
    MutexLock lock(mu_);
    if (std::exchange(second_, now) != now) chosen_.clear();
    if (++chosen_[model] <= options_.max_per_second) return true;
  }
  Drop(RecorderDrop::kRate);
  return false;
}

bool Recorder::FitsIntoFile(int64_t record_bytes) const {
  return record_bytes + recording::kRecordHeaderBytes +
             static_cast<int64_t>(recording::kFileMagic.size()) <=
         options_.max_file_bytes;
}

void Recorder::Add(Recording record) {
  const int64_t size = SizeOf(record);
  if (!FitsIntoFile(size)) return Drop(RecorderDrop::kTooLarge);
  {
    MutexLock lock(mu_);
    if (queued_bytes_ + size <= options_.max_queued_bytes) {
      queued_bytes_ += size;
      queue_.push_back({.record = std::move(record)});
      work_.NotifyOne();
      return;
    }
  }
  Drop(RecorderDrop::kQueueFull);
}

int64_t Recorder::Minute() const {
  return std::chrono::duration_cast<std::chrono::minutes>(clock_.Now().time_since_epoch()).count();
}

bool Recorder::AmongSlowest(const std::string& model, int64_t duration_us) {
  if (options_.slowest_per_minute == 0) return false;
  if (slow_minute_ == Minute() && duration_us <= least_slow_us_) return false;
  return OwnShare(model) != 0.0;
}

void Recorder::AddSlow(Recording record) {
  const int64_t size = SizeOf(record);
  if (!FitsIntoFile(size)) return Drop(RecorderDrop::kTooLarge);
  if (size > options_.max_queued_bytes) return Drop(RecorderDrop::kQueueFull);
  const auto most = static_cast<size_t>(options_.slowest_per_minute);
  MutexLock lock(mu_);
  EndMinute();
  if (slow_.empty()) work_.NotifyOne();  // The thread is to wait until the minute is over.
  slow_minute_ = Minute();
  const auto place = std::upper_bound(slow_.begin(), slow_.end(), record, Slower);
  slow_.insert(place, std::move(record));
  slow_bytes_ += size;
  // Those of the last minute may not be written yet.
  const int64_t room = std::min<int64_t>(options_.max_queued_bytes,
                                         2 * int64_t{options_.max_queued_bytes} - queued_bytes_);
  while (slow_.size() > most || slow_bytes_ > room) {
    if (slow_.size() <= most) Drop(RecorderDrop::kQueueFull);
    least_slow_us_ = slow_.back().duration_us();
    slow_bytes_ -= SizeOf(slow_.back());
    slow_.pop_back();
  }
  if (slow_.size() == most) least_slow_us_ = slow_.back().duration_us();
}

void Recorder::EndMinute() {
  if (slow_minute_ == Minute() && !stopping_) return;
  for (Recording& record : slow_) queue_.push_back({.record = std::move(record), .slow = true});
  if (!slow_.empty()) work_.NotifyOne();
  slow_.clear();
  queued_bytes_ += std::exchange(slow_bytes_, 0);
  least_slow_us_ = 0;
}

RecorderStats Recorder::Stats() const {
  RecorderStats stats;
  stats.records = records_.load();
  stats.bytes = bytes_.load();
  for (size_t i = 0; i < dropped_.size(); ++i) stats.dropped[i] = dropped_[i].load();
  stats.failing = failing_.load();
  MutexLock lock(mu_);
  stats.queued_bytes = queued_bytes_ + slow_bytes_;
  return stats;
}

void Recorder::Run() {
  MakeBackgroundThread("ulfd-recorder");
  while (true) {
    {
      MutexLock lock(mu_);
      for (EndMinute(); queue_.empty() && !stopping_; EndMinute()) {
        if (slow_.empty()) {
          work_.Wait(mu_);
        } else {
          work_.WaitUntil(mu_, TimePoint(std::chrono::minutes(slow_minute_ + 1)));
        }
      }
      if (queue_.empty()) return;
    }
    WriteQueued();
  }
}

void Recorder::WriteQueued() {
  std::vector<Queued> batch;
  {
    MutexLock lock(mu_);
    EndMinute();
    batch.swap(queue_);
  }
  for (Queued& queued : batch) {
    const int64_t size = SizeOf(queued.record);
    Write(queued);
    queued.record.Clear();
    MutexLock lock(mu_);
    queued_bytes_ -= size;
  }
}

void Recorder::Write(const Queued& queued) {
  const bool paused = failing_ && clock_.Now() < retry_at_;
  if (!paused) {
    const absl::Status status = WithinMemory([&] {
      const std::string folder = recording::ModelFolder(
          absl::StrCat(options_.directory, queued.slow ? "/slowest" : ""), queued.record.model());
      return Append(folder, queued.record.SerializeAsString());
    });
    WithinMemory([&] { SetStatus(status); }).IgnoreError();  // It may be for want of memory.
  }
  if (!failing_) return;
  ++lost_;
  Drop(RecorderDrop::kDisk);
}

void Recorder::SetStatus(const absl::Status& status) {
  const bool failed = !status.ok();
  if (failed) retry_at_ = clock_.Now() + options_.retry_interval;
  if (failing_.exchange(failed) != failed) on_change_(status, lost_);
  if (!failed) lost_ = 0;
}

absl::Status Recorder::Append(const std::string& folder, const std::string& payload) {
  // Names of models that came and went keep no file open.
  if (files_.size() >= kMostOpenFiles && !files_.contains(folder)) files_.clear();
  ModelFiles& files = files_[folder];
  const int64_t size = recording::kRecordHeaderBytes + static_cast<int64_t>(payload.size());
  // Records in a file that nobody can find would count as written.
  if (files.writer == nullptr || files.writer->bytes() + size > options_.max_file_bytes ||
      !files.writer->InPlace()) {
    RETURN_IF_ERROR(NextFile(folder, files));
  }
  RETURN_IF_ERROR(files.writer->Append(payload));
  records_.fetch_add(1);
  bytes_.fetch_add(size);
  return absl::OkStatus();
}

absl::Status Recorder::NextFile(const std::string& folder, ModelFiles& files) {
  if (files.next_number < 0) {
    ASSIGN_OR_RETURN(const auto found, recording::ListFiles(folder));
    for (const recording::RecordingPath& file : found) files.paths.push_back(file.path);
    files.next_number = found.empty() ? 1 : found.back().number + 1;
  }
  // The oldest go first, so that there is never one too many, and a full disk gets room.
  while (static_cast<int>(files.paths.size()) >= options_.max_files) {
    unlink(files.paths.front().c_str());
    files.paths.erase(files.paths.begin());
  }
  while (true) {
    const std::string path = recording::FileName(folder, files.next_number);
    auto writer = recording::RecordingWriter::Create(path);
    if (!absl::IsAlreadyExists(writer.status())) RETURN_IF_ERROR(writer.status());
    ++files.next_number;
    if (!writer.ok()) continue;  // Another daemon's.
    files.paths.push_back(path);
    files.writer = std::make_unique<recording::RecordingWriter>(*std::move(writer));
    return absl::OkStatus();
  }
}

}  // namespace ulfd::server
