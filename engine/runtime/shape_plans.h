// Plans for shapes that no graph or manifest states, but requests show.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_SHAPE_PLANS_H_
#define ULFD_ENGINE_RUNTIME_SHAPE_PLANS_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
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
};

// Of one model.  There is room for a few shapes.  Once all of it is taken, a new shape may have the
// place of the one that was not asked for for the longest time, but seldom: making plans takes time
// from others, whoever asks for it.  Thread-safe.
class ShapePlans {
 public:
  static constexpr size_t kMost = 8;

  // `tolerance`: see IsNear.  `max_bytes`: what all plans together may take.
  ShapePlans(std::shared_ptr<const PlanRecipe> recipe, double tolerance, int64_t max_bytes)
      : recipe_(std::move(recipe)), tolerance_(tolerance), max_bytes_(max_bytes) {}

  // For `model`, which differs by its tables alone: with the plans that serve here, and those that
  // are wanted.
  std::shared_ptr<ShapePlans> For(const Executable& model) const;

  // The plan that `fits`, which is about to run, or null.
  std::shared_ptr<const ShapePlan> Find(absl::FunctionRef<bool(const ShapePlan&)> fits);
  std::vector<std::shared_ptr<const ShapePlan>> Serving() const;

  // Notes the shapes of a request of one user that `model` ran by numpy's rules, if they are new
  // and could have a plan.  Whether they now want one.  Allocates only then.
  bool Show(const Executable& model, const Request& request);

  // See Model::WantsPlans, Model::MakePlans and Model::shape_plans.  `fetch` brings the rows that a
  // request needs of tables in stores.
  using FetchFn = absl::FunctionRef<void(absl::Span<const NamedTensor> inputs, FetchedRows& rows)>;
  bool wanted() const;
  std::vector<ShapePlanInfo> Make(const Executable& model, FetchFn fetch, const RunOptions& run,
                                  int64_t max_bytes);
  std::vector<ShapePlanInfo> Describe() const;
  // Of all plans.
  int64_t bytes() const;
  // Requests whose plans have run, or are still wanted.
  std::vector<std::shared_ptr<const ShownRequest>> Shown() const;

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  // Shapes that a request has shown.
  struct Place {
    uint64_t key = 0;
    std::shared_ptr<const ShownRequest> shown;
    int64_t used = 0;                       // When it was asked for last, by uses_.
    std::shared_ptr<const ShapePlan> plan;  // Null: it is wanted, or refused.
    int64_t runs = 0;                       // Of the plan.
    bool refused = false, leaves = false;   // The latter: another one has its place.
    std::string why_refused;

    bool wanted() const { return plan == nullptr && !refused; }
  };
  static ShapePlanInfo Describe(const Place& place);
  int64_t ShownBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A place for the shapes of a request; false: there is none.
  bool Take(const Executable& model, const Request& request, int64_t ads, uint64_t key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
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

  const std::shared_ptr<const PlanRecipe> recipe_;
  const double tolerance_;
  const int64_t max_bytes_;
  Mutex making_;  // Held while plans are made, and where places go.
  mutable Mutex mu_;
  std::deque<Place> places_ ABSL_GUARDED_BY(mu_);
  int64_t uses_ ABSL_GUARDED_BY(mu_) = 0;
  // Not before that, and then one, until a plan was made.
  TimePoint replace_at_ ABSL_GUARDED_BY(mu_) = TimePoint::max();
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_SHAPE_PLANS_H_
