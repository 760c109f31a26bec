// Runs one big request on several threads.
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/parallel_run.h"

#include <thread>

#include "absl/base/thread_annotations.h"
#include "engine/status_macros.h"
#include "engine/tensor/mutex.h"
#include "engine/tensor/onednn.h"

namespace ulfd::engine {

// The request that is being run, and the threads.  What threads read of the request is written
// before `round` moves on, under the mutex.
struct ParallelRunner::State {
  explicit State(int threads) : workspaces(threads), stats(threads), statuses(threads) {
    for (int i = 1; i < threads; ++i) {
      workers.emplace_back([this, i] { Work(i); });
    }
  }
  ~State() {
    {
      const MutexLock lock(mutex);
      quit = true;
    }
    wake.NotifyAll();
    for (std::thread& worker : workers) worker.join();
  }

  void Work(int index) {
    UseOneThread();
    int64_t seen = 0;
    for (;;) {
      {
        const MutexLock lock(mutex);
        while (!quit && round == seen) wake.Wait(mutex);
        if (quit) return;
        seen = round;
      }
      RunShare(index);
      const MutexLock lock(mutex);
      if (--running == 0) done.NotifyOne();
    }
  }

  // The share of the ads of thread `index`.
  void RunShare(int index) {
    const int64_t n = static_cast<int64_t>(workspaces.size());
    statuses[index] =
        model->RunAds(part, *options, part.ads() * index / n, part.ads() * (index + 1) / n,
                      workspaces[index], result->outputs, stats[index]);
  }

  void RunAll() {
    {
      const MutexLock lock(mutex);
      running = static_cast<int>(workers.size());
      ++round;
    }
    wake.NotifyAll();
    RunShare(0);
    const MutexLock lock(mutex);
    while (running > 0) done.Wait(mutex);
  }

  Mutex mutex;
  CondVar wake, done;
  int64_t round ABSL_GUARDED_BY(mutex) = 0;
  int running ABSL_GUARDED_BY(mutex) = 0;
  bool quit ABSL_GUARDED_BY(mutex) = false;

  const Model* model = nullptr;
  const RunOptions* options = nullptr;
  RunResult* result = nullptr;
  SharedUserPart part;
  std::vector<Workspace> workspaces;  // Per thread.
  std::vector<RunStats> stats;
  std::vector<absl::Status> statuses;
  std::vector<std::thread> workers;  // Last: they use everything above.
};

ParallelRunner::ParallelRunner(int threads) : state_(std::make_unique<State>(threads)) {}
ParallelRunner::~ParallelRunner() = default;

absl::Status ParallelRunner::Run(const Model& model, absl::Span<const NamedTensor> inputs,
                                 const RunOptions& options, RunResult& result) {
  State& state = *state_;
  RETURN_IF_ERROR(model.RunUserPart(inputs, options, state.workspaces[0], state.part, result));
  if (state.part.ads() == 0) return absl::OkStatus();
  state.model = &model;
  state.options = &options;
  state.result = &result;
  for (RunStats& stats : state.stats) stats = RunStats{};
  state.RunAll();
  for (const absl::Status& status : state.statuses) RETURN_IF_ERROR(status);
  for (const RunStats& stats : state.stats) AddAds(stats, result.stats);
  return absl::OkStatus();
}

}  // namespace ulfd::engine
