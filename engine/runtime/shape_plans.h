// Plans for shapes that no graph or manifest states, but requests show.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_SHAPE_PLANS_H_
#define ULFD_ENGINE_RUNTIME_SHAPE_PLANS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/model.h"
#include "engine/runtime/plan_recipe.h"
#include "engine/runtime/request.h"

namespace ulfd::engine {

// A copy of a request of one user, cut to a few ads, and its shapes.
struct ShownRequest {
  std::vector<InputShape> shapes;
  std::vector<NamedTensor> inputs;      // Names are the model's.
  std::vector<std::vector<char>> data;  // Of `inputs`.
  int64_t bytes = 0;
};

// The plans for requests of the same shapes.
struct ShapePlan {
  std::vector<InputShape> shapes;
  Executable executable;  // Without shape plans of its own.
  int64_t bytes = 0;      // Beside what the model holds without it.
  mutable std::atomic<int64_t> runs = 0;
};

// Of one model.  There is room for a few shapes; each takes a place for good, so that readers need
// no lock, and nobody can have plans made without end.  Thread-safe.
class ShapePlans {
 public:
  static constexpr int kMost = 8;

  // `tolerance`: see IsNear.  `max_bytes`: what all plans together may take.
  ShapePlans(std::shared_ptr<const PlanRecipe> recipe, double tolerance, int64_t max_bytes)
      : recipe_(std::move(recipe)), tolerance_(tolerance), max_bytes_(max_bytes) {}
  ~ShapePlans();

  // For `model`, which differs by its tables alone: with the plans that serve here, and those that
  // are wanted.
  std::shared_ptr<ShapePlans> For(const Executable& model) const;

  // The plan in that place, or null.
  const ShapePlan* at(int place) const {
    return places_[place].plan.load(std::memory_order_acquire);
  }

  // Notes the shapes of a request of one user that `model` ran by numpy's rules, if they are new
  // and could have a plan.  Whether they now want one.  Allocates only then.
  bool Show(const Executable& model, const Request& request);

  // Whether there is a plan.
  bool serving() const;

  // See Model::WantsPlans, Model::MakePlans and Model::shape_plans.  `fetch` brings the rows that a
  // request needs of tables in stores.
  using FetchFn = absl::FunctionRef<void(absl::Span<const NamedTensor> inputs, FetchedRows& rows)>;
  bool wanted() const;
  std::vector<ShapePlanInfo> Make(const Executable& model, FetchFn fetch, const RunOptions& run,
                                  int64_t max_bytes);
  std::vector<ShapePlanInfo> Describe() const;
  // Of all plans.
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // Requests whose plans have run, or are still wanted.  They live as long as this object.
  std::vector<const ShownRequest*> Shown() const;

 private:
  struct Place {
    std::atomic<uint64_t> key = 0;  // 0: free.
    std::atomic<const ShownRequest*> shown = nullptr;
    std::atomic<const ShapePlan*> plan = nullptr;
    std::atomic<bool> refused = false;
  };
  static bool IsWanted(const Place& place);
  absl::StatusOr<std::unique_ptr<const ShapePlan>> MakeOne(const Executable& model,
                                                           const ShownRequest& shown,
                                                           const RunOptions& run,
                                                           int64_t max_bytes) const;
  // The same for `shapes`, which are the request's with more levels known.
  absl::StatusOr<std::unique_ptr<const ShapePlan>> MakeFor(std::vector<InputShape> shapes,
                                                           const Executable& model,
                                                           const ShownRequest& shown,
                                                           const RunOptions& run,
                                                           int64_t max_bytes) const;
  ShapePlanInfo DescribeOne(int place) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const PlanRecipe> recipe_;
  const double tolerance_;
  const int64_t max_bytes_;
  std::array<Place, kMost> places_;
  std::atomic<int64_t> bytes_ = 0, shown_bytes_ = 0;
  Mutex making_;  // Held while plans are made.
  mutable Mutex mu_;
  std::array<std::string, kMost> why_refused_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_SHAPE_PLANS_H_
