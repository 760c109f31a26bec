// Choosing, queueing, writing, rotating.
// SPDX-License-Identifier: Apache-2.0
#include "server/recorder/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "server/system/thread_priority.h"

namespace ulfd::server {
namespace {

using recording::v1::Recording;

// A well mixed number for each call, so that a regular pattern of calls is sampled evenly.
uint64_t Mix(uint64_t z) {
  z += 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

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
    return absl::UnavailableError(absl::StrCat("recorder.directory: ", options.directory,
                                               ": cannot write there",
                                               error ? absl::StrCat(": ", error.message()) : ""));
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

Recorder::~Recorder() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    work_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

bool Recorder::BelowShare(const std::string& model) {
  double share = options_.share;
  {
    MutexLock lock(shares_mu_);
    if (const auto own = model_shares_.find(model); own != model_shares_.end()) share = own->second;
  }
  if (share <= 0) return false;
  const uint64_t number = calls_seen_.fetch_add(1, std::memory_order_relaxed);
  return static_cast<double>(Mix(number) >> 11) * 0x1p-53 < share;
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
    Second& second = seconds_[model];
    if (second.number != now) second = {.number = now};
    if (++second.chosen <= options_.max_per_second) return true;
  }
  Drop(RecorderDrop::kRate);
  return false;
}

void Recorder::Add(Recording record) {
  const auto size = static_cast<int64_t>(record.ByteSizeLong());
  if (size + recording::kRecordHeaderBytes + static_cast<int64_t>(recording::kFileMagic.size()) >
      options_.max_file_bytes) {
    return Drop(RecorderDrop::kTooLarge);
  }
  {
    MutexLock lock(mu_);
    if (queued_bytes_ + size <= options_.max_queued_bytes) {
      queued_bytes_ += size;
      queue_.push_back(std::move(record));
      work_.NotifyOne();
      return;
    }
  }
  Drop(RecorderDrop::kQueueFull);
}

RecorderStats Recorder::Stats() const {
  RecorderStats stats;
  stats.records = records_.load();
  stats.bytes = bytes_.load();
  for (size_t i = 0; i < dropped_.size(); ++i) stats.dropped[i] = dropped_[i].load();
  stats.failing = failing_.load();
  MutexLock lock(mu_);
  stats.queued_bytes = queued_bytes_;
  return stats;
}

void Recorder::Run() {
  MakeBackgroundThread("ulfd-recorder");
  while (true) {
    {
      MutexLock lock(mu_);
      while (queue_.empty() && !stopping_) work_.Wait(mu_);
      if (queue_.empty()) return;
    }
    WriteQueued();
  }
}

void Recorder::WriteQueued() {
  std::vector<Recording> batch;
  {
    MutexLock lock(mu_);
    batch.swap(queue_);
  }
  for (Recording& record : batch) {
    const auto size = static_cast<int64_t>(record.ByteSizeLong());
    Write(record);
    record.Clear();
    MutexLock lock(mu_);
    queued_bytes_ -= size;
  }
}

void Recorder::Write(const Recording& record) {
  const bool paused = failing_ && clock_.Now() < retry_at_;
  if (!paused) {
    const absl::Status status =
        WithinMemory([&] { return Append(record.model(), record.SerializeAsString()); });
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

absl::Status Recorder::Append(const std::string& model, const std::string& payload) {
  ModelFiles& files = files_[model];
  const int64_t size = recording::kRecordHeaderBytes + static_cast<int64_t>(payload.size());
  if (files.writer == nullptr || files.writer->bytes() + size > options_.max_file_bytes) {
    RETURN_IF_ERROR(NextFile(model, files));
  }
  RETURN_IF_ERROR(files.writer->Append(payload));
  records_.fetch_add(1);
  bytes_.fetch_add(size);
  return absl::OkStatus();
}

absl::Status Recorder::NextFile(const std::string& model, ModelFiles& files) {
  if (files.next_number < 0) {
    ASSIGN_OR_RETURN(const auto found, recording::ListFiles(options_.directory, model));
    for (const recording::RecordingPath& file : found) files.paths.push_back(file.path);
    files.next_number = found.empty() ? 1 : found.back().number + 1;
  }
  // The oldest go first, so that there is never one too many, and a full disk gets room.
  while (static_cast<int>(files.paths.size()) >= options_.max_files) {
    unlink(files.paths.front().c_str());
    files.paths.erase(files.paths.begin());
  }
  const std::string folder = recording::ModelFolder(options_.directory, model);
  const std::string path = recording::FileName(folder, files.next_number);
  ASSIGN_OR_RETURN(auto writer, recording::RecordingWriter::Create(path));
  ++files.next_number;
  files.paths.push_back(path);
  files.writer = std::make_unique<recording::RecordingWriter>(std::move(writer));
  return absl::OkStatus();
}

}  // namespace ulfd::server
