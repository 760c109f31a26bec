// Three functions of gRPC's own HPACK parser.  The library calls them through the dynamic linker,
// which takes the program's first (decision 0088).
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/header_limit.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/errors.h"
#include "base/mutex.h"

struct grpc_metadata_batch;
struct grpc_slice;

namespace grpc_core {

// As much of gRPC's declaration as callers need.
class HPackParser {
 public:
  enum class Boundary : uint8_t { kMoreFrames, kEndOfHeaders, kEndOfStream };
  enum class Priority : uint8_t;
  struct LogInfo {
    uint32_t stream_id;
    uint8_t type;
    bool is_client;
  };
  ~HPackParser();
  void BeginFrame(grpc_metadata_batch* batch, uint32_t limit, Boundary boundary, Priority priority,
                  LogInfo info);
  absl::Status Parse(const grpc_slice& slice, bool is_last);
};

}  // namespace grpc_core

namespace ulfd::server {
namespace {

using grpc_core::HPackParser;

// The largest frame that peers may send, unless gRPC tells them otherwise.
constexpr int64_t kFrameBytes = 16384;

std::atomic<int64_t> most_bytes{std::numeric_limits<uint32_t>::max()};

// Headers that have not ended with their first frame: no proper client's are that large.
struct Unended {
  Mutex mu;
  std::unordered_map<const HPackParser*, int64_t> frames ABSL_GUARDED_BY(mu);
  std::atomic<bool> any{false};
};

Unended& unended() {
  static auto* all = new Unended;  // gRPC's threads may outlive static objects.
  return *all;
}

// That do not end the headers: one more than they need.
int64_t MostUnended() { return (most_bytes.load() + kFrameBytes - 1) / kFrameBytes; }

void CountFrame(const HPackParser* parser, bool ends) {
  Unended& all = unended();
  if (ends && !all.any.load(std::memory_order_acquire)) return;
  MutexLock lock(all.mu);
  if (ends) {
    all.frames.erase(parser);
  } else {
    ++all.frames[parser];
  }
  all.any.store(!all.frames.empty(), std::memory_order_release);
}

int64_t FramesOf(const HPackParser* parser) {
  Unended& all = unended();
  if (!all.any.load(std::memory_order_acquire)) return 0;
  MutexLock lock(all.mu);
  const auto it = all.frames.find(parser);
  return it == all.frames.end() ? 0 : it->second;
}

template <typename Function>
Function* OfLibrary(const char* name) {
  void* function = dlsym(RTLD_NEXT, name);
  if (function == nullptr) std::abort();  // Who called ours?
  return reinterpret_cast<Function*>(function);
}

}  // namespace

void LimitHeaders(int64_t max_header_bytes) {
  most_bytes = std::min<int64_t>(max_header_bytes, std::numeric_limits<uint32_t>::max());
}

}  // namespace ulfd::server

namespace grpc_core {

HPackParser::~HPackParser() {
  static auto* const end =
      ulfd::server::OfLibrary<void(HPackParser*)>("_ZN9grpc_core11HPackParserD1Ev");
  ulfd::server::CountFrame(this, /*ends=*/true);
  end(this);
}

void HPackParser::BeginFrame(grpc_metadata_batch* batch, uint32_t limit, Boundary boundary,
                             Priority priority, LogInfo info) {
  static auto* const begin = ulfd::server::OfLibrary<void(HPackParser*, grpc_metadata_batch*,
                                                          uint32_t, Boundary, Priority, LogInfo)>(
      "_ZN9grpc_core11HPackParser10BeginFrameEP19grpc_metadata_batchjNS0_8BoundaryENS0_"
      "8PriorityENS0_7LogInfoE");
  // Of frames that it skips (no batch), gRPC 1.51 says the opposite.
  if (batch == nullptr) {
    boundary = boundary == Boundary::kMoreFrames ? Boundary::kEndOfHeaders : Boundary::kMoreFrames;
  }
  ulfd::server::CountFrame(this, boundary != Boundary::kMoreFrames);
  const auto most = static_cast<uint32_t>(ulfd::server::most_bytes.load());
  begin(this, batch, std::min(limit, most), boundary, priority, info);
}

absl::Status HPackParser::Parse(const grpc_slice& slice, bool is_last) {
  static auto* const parse =
      ulfd::server::OfLibrary<absl::Status(HPackParser*, const grpc_slice&, bool)>(
          "_ZN9grpc_core11HPackParser5ParseERK10grpc_sliceb");
  if (ulfd::server::FramesOf(this) > ulfd::server::MostUnended()) {
    return ulfd::ResourceExhausted("headers go on over too many frames");
  }
  return parse(this, slice, is_last);
}

}  // namespace grpc_core
