// The target of one large request on two cores.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "tests/bench/bench_models.h"
#include "tests/bench/scratch_model.h"
#include "tests/bench/targets.h"

namespace ulfd::bench {
namespace {

constexpr int64_t kAds = 2000;
constexpr double kTarget = 0.58;

// Runs a request on the calling thread and one more, half of the ads each.
class TwoThreads {
 public:
  TwoThreads(const engine::Model& model, absl::Span<const engine::NamedTensor> inputs)
      : model_(model), inputs_(inputs), other_([this] { Serve(); }) {}
  ~TwoThreads() {
    Tell(kStop);
    other_.join();
  }
  TwoThreads(const TwoThreads&) = delete;
  TwoThreads& operator=(const TwoThreads&) = delete;

  absl::Status Run() {
    RETURN_IF_ERROR(model_.RunUserPart(inputs_, {}, workspace_, part_, result_));
    if (part_.ads() != kAds) return absl::InternalError("the request is not cut into ads");
    Tell(kWork);
    engine::RunStats stats;
    absl::Status status =
        model_.RunAds(part_, {}, 0, kAds / 2, ads_workspace_, result_.outputs, stats);
    while (state_.load(std::memory_order_acquire) == kWork) state_.wait(kWork);
    status.Update(other_status_);
    return status;
  }
  const engine::RunResult& result() const { return result_; }

 private:
  enum State { kIdle, kWork, kStop };
  void Tell(State state) {
    state_.store(state, std::memory_order_release);
    state_.notify_all();
  }
  void Serve() {
    engine::UseOneThread();
    engine::Workspace workspace;
    engine::RunStats stats;
    for (;;) {
      state_.wait(kIdle);
      if (state_.load(std::memory_order_acquire) == kStop) return;
      other_status_ = model_.RunAds(part_, {}, kAds / 2, kAds, workspace, result_.outputs, stats);
      Tell(kIdle);
    }
  }

  const engine::Model& model_;
  const absl::Span<const engine::NamedTensor> inputs_;
  engine::Workspace workspace_, ads_workspace_;
  engine::SharedUserPart part_;
  engine::RunResult result_;
  absl::Status other_status_;  // Belongs to whom state_ says: kWork: the other thread.
  std::atomic<State> state_{kIdle};
  std::thread other_;  // Last: it uses the others.
};

absl::Status CheckEqual(const engine::RunResult& one, const engine::RunResult& two) {
  for (size_t o = 0; o < one.outputs.size(); ++o) {
    const engine::Tensor &a = one.outputs[o], &b = two.outputs[o];
    if (a.dims != b.dims) return absl::InternalError("two threads give another shape");
    for (int64_t i = 0; i < a.elements(); ++i) {
      if (std::abs(a.f32()[i] - b.f32()[i]) <= 1e-6) continue;
      return absl::InternalError(absl::StrCat("element ", i, ": ", b.f32()[i], " on two threads, ",
                                              a.f32()[i], " on one"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureCores(TargetContext& context, const std::string& row) {
  TargetLine line{.row = row,
                  .work = "DIN, 2000 ads: time on 2 cores over time on 1",
                  .target = absl::StrFormat("at most %.3g x", kTarget)};
  if (std::thread::hardware_concurrency() < 2) {
    Skip(context, row, line.work, line.target, "one CPU only");
    return absl::OkStatus();
  }
  ScratchModel scratch;
  BuildDin(scratch);
  ASSIGN_OR_RETURN(const auto model, scratch.Load(absl::StrCat(context.scratch, "/", row, "/1")));
  const MadeUpRequest request(model->info(), kAds, 1, 1);
  engine::Workspace workspace;
  engine::RunResult result;
  TwoThreads two(*model, request.inputs());
  RETURN_IF_ERROR(model->Run(request.inputs(), {}, workspace, result));
  RETURN_IF_ERROR(two.Run());
  RETURN_IF_ERROR(CheckEqual(result, two.result()));
  TurnsOptions options = context.turns;
  options.wall = true;  // Both cores must be free for this to mean anything.
  ASSIGN_OR_RETURN(
      const Turns turns,
      RunInTurns({{"one", [&] { return model->Run(request.inputs(), {}, workspace, result); }},
                  {"two", [&] { return two.Run(); }}},
                 options));
  const Spread ratio = SpreadOf(Ratios(turns.seconds[1], turns.seconds[0]));
  line.reached = Format(ratio, " x");
  line.verdict = ratio.median <= kTarget ? Verdict::kReached : Verdict::kMissed;
  line.detail =
      absl::StrFormat("%.4g ms and %.4g ms on the wall", SpreadOf(turns.seconds[1]).median * 1e3,
                      SpreadOf(turns.seconds[0]).median * 1e3);
  line.numbers = {{"ratio", ratio.median}, {"ratio_low", ratio.low}, {"ratio_high", ratio.high}};
  context.lines.push_back(std::move(line));
  return absl::OkStatus();
}

}  // namespace ulfd::bench
