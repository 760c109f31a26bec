// Functions of gRPC's own HTTP/2 that the library calls through the dynamic linker, which takes the
// program's first (decision 0090).
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/frame_limit.h"

#include <grpc/slice.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "server/rpc/of_library.h"

// As much of gRPC's declarations as callers need.
struct grpc_chttp2_transport {  // NOLINT(readability-identifier-naming): its name.
  ~grpc_chttp2_transport();
};
absl::Status grpc_chttp2_perform_read(grpc_chttp2_transport* transport, const grpc_slice& slice);

namespace ulfd::server {
namespace {

constexpr size_t kPrefaceBytes = 24;
constexpr size_t kLengthBytes = 3, kHeadBytes = 9;

// A library's functions have no object to keep anything in.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<int64_t> ended{0};

class Connections {
 public:
  // One thread at a time reads a connection.
  FrameCount& Of(const grpc_chttp2_transport* transport) {
    MutexLock lock(mu_);
    return counts_[transport];
  }
  void End(const grpc_chttp2_transport* transport) {
    MutexLock lock(mu_);
    counts_.erase(transport);
  }

 private:
  Mutex mu_;
  std::unordered_map<const grpc_chttp2_transport*, FrameCount> counts_ ABSL_GUARDED_BY(mu_);
};

Connections& connections() {
  static auto* all = new Connections;  // gRPC's threads may outlive static objects.
  return *all;
}

}  // namespace

bool FrameCount::Add(const uint8_t* bytes, size_t size, TimePoint now) {
  if (size == 0) return true;
  if (!begun_) {
    // A client's preface; no frame is as long as it would be as one.
    if (*bytes == 'P') left_ = kPrefaceBytes;
    begun_ = true;
    last_ = now;
  }
  const std::chrono::duration<double> since = now - last_;
  const auto paid = std::min<double>(since.count() * kFreePerSecond, kMostOwed);
  owed_bytes_ = std::max<int64_t>(0, owed_bytes_ - static_cast<int64_t>(paid * kPaidBytes));
  last_ = now;
  for (const uint8_t* const end = bytes + size;;) {
    const size_t passed = std::min(left_, static_cast<size_t>(end - bytes));
    left_ -= passed;
    bytes += passed;
    if (bytes == end) return owed_bytes_ <= kMostOwed * kPaidBytes;
    if (head_ < kLengthBytes) length_ = length_ << 8 | *bytes;
    ++bytes;
    if (++head_ == kHeadBytes) Begin(length_);
  }
}

void FrameCount::Begin(size_t length) {
  owed_bytes_ = std::max<int64_t>(0, owed_bytes_ + kPaidBytes - static_cast<int64_t>(length));
  left_ = length;
  head_ = 0;
  length_ = 0;
}

int64_t EndedForFrames() { return ended.load(std::memory_order_relaxed); }

}  // namespace ulfd::server

grpc_chttp2_transport::~grpc_chttp2_transport() {
  static auto* const end =
      ulfd::server::OfLibrary<void(grpc_chttp2_transport*)>("_ZN21grpc_chttp2_transportD1Ev");
  ulfd::server::connections().End(this);
  end(this);
}

absl::Status grpc_chttp2_perform_read(grpc_chttp2_transport* transport, const grpc_slice& slice) {
  static auto* const read =
      ulfd::server::OfLibrary<absl::Status(grpc_chttp2_transport*, const grpc_slice&)>(
          "_Z24grpc_chttp2_perform_readP21grpc_chttp2_transportRK10grpc_slice");
  if (!ulfd::server::connections().Of(transport).Add(GRPC_SLICE_START_PTR(slice),
                                                     GRPC_SLICE_LENGTH(slice),
                                                     std::chrono::steady_clock::now())) {
    ulfd::server::ended.fetch_add(1, std::memory_order_relaxed);
    return ulfd::ResourceExhausted("frames: more than their bytes and time allow");
  }
  return read(transport, slice);
}
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)
