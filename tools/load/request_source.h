// The requests of a load, serialised, so that sending one costs the sender next to nothing.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_REQUEST_SOURCE_H_
#define ULFD_TOOLS_LOAD_REQUEST_SOURCE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/client/connection.h"
#include "tools/load/load_options.h"

namespace ulfd::tools {

// One call to make.  Copying it copies no bytes of the message.
struct LoadRequest {
  LoadApi api = LoadApi::kNative;
  grpc::ByteBuffer message;
  int64_t bytes = 0;
  int64_t ads = 0;
  int64_t timeout_us = 0;  // 0: the load's.
};

// "/ulfd.v1.PredictionService/Predict" or that of ModelInfer.
const char* MethodOf(LoadApi api);

// Thread-safe.
class RequestSource {
 public:
  // Asks the server about the model, and makes the pool.  Errors: those of the server, which tell
  // an unreachable one; of files; and of flags that do not suit the model.
  static absl::StatusOr<std::unique_ptr<RequestSource>> Create(const LoadOptions& options,
                                                               const Connection& server);

  // The `number`-th request; the sequence never ends.
  LoadRequest Get(uint64_t number) const;

  // With --replay: when the requests came, in nanoseconds, ascending; one for each of the pool.
  const std::vector<int64_t>& recorded_times_ns() const { return times_; }
  // How many different requests there are; 0: no end of them.
  int64_t pool_size() const { return static_cast<int64_t>(pool_.size()); }
  // Of the requests in the pool, or of some that are like those to come.
  double mean_bytes() const { return mean_bytes_; }
  // "din" or, of a recording, "din and 2 others".
  const std::string& model() const { return model_; }
  // What the user should know: records that could not be read.
  const std::string& notice() const { return notice_; }

 private:
  RequestSource() = default;
  absl::Status MakeRandom(const LoadOptions& options, const Connection& server);
  absl::Status MakeFromArrays(const LoadOptions& options, const Connection& server);
  absl::Status MakeFromRecording(const LoadOptions& options, const Connection& server);

  std::vector<LoadRequest> pool_;
  std::function<LoadRequest(uint64_t)> make_;  // Used if the pool is empty.
  std::vector<int64_t> times_;
  double mean_bytes_ = 0;
  std::string model_, notice_;
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_REQUEST_SOURCE_H_
