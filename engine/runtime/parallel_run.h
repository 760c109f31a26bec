// Runs one big request on several threads: for tools and benchmarks.  (A server has workers of its
// own and uses Model::RunUserPart and Model::RunAds.)
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_PARALLEL_RUN_H_
#define ULFD_ENGINE_RUNTIME_PARALLEL_RUN_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/runtime/model.h"

namespace ulfd::engine {

// Threads that wait for work, the calling one among them.  Not thread-safe: one request at a time.
class ParallelRunner {
 public:
  // REQUIRES: threads > 0.
  explicit ParallelRunner(int threads);
  ~ParallelRunner();

  // Like Model::Run; every thread computes about as many ads.  `result` is valid until the next
  // Run.  Times of the ads' part are added up over the threads.  `options.stop` is polled by all
  // threads.  REQUIRES: UsesOneThread() and no options.steps.
  absl::Status Run(const Model& model, absl::Span<const NamedTensor> inputs,
                   const RunOptions& options, RunResult& result);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_PARALLEL_RUN_H_
