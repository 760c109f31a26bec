// What one worker keeps between runs: arenas, and shapes worked out for recent kinds of requests.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_WORKSPACE_H_
#define ULFD_ENGINE_RUNTIME_WORKSPACE_H_

#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "engine/caches/ad_cache.h"
#include "engine/plan/plan.h"
#include "engine/plan/schedule.h"
#include "engine/runtime/model.h"
#include "engine/runtime/request.h"

namespace ulfd::engine {

struct Executable;  // engine/runtime/executor.h
struct ShapePlan;   // engine/runtime/shape_plans.h

// A block of memory that grows on demand; contents are lost when it grows.  64-byte aligned.
class Arena {
 public:
  // UNAVAILABLE if the system has no such memory; it holds nothing then.
  absl::Status Reserve(int64_t bytes);
  void Release();
  // Releases it if it is large and nobody has reserved more than half of it since the last call.
  // Whether it is large still.
  bool Shrink();
  void* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
  int64_t bytes_ = 0;
  int64_t used_ = 0;  // The most that was reserved since the last Shrink.
};

// The plan of the graph as written, with numbers: concrete shapes of every value for one kind of
// request, and where each value lies.
struct Binding {
  std::vector<int64_t> key;
  std::weak_ptr<const void> model;  // Whose plan; expired once the model is gone.
  std::vector<Tensor> values;       // Without data.
  ArenaLayout layout;
  int64_t scratch_bytes = 0;
  int64_t output_bytes = 0;
  // Per step: views with dims set; data is set on each run.
  struct StepTensors {
    std::vector<Tensor> in, out;
  };
  std::vector<StepTensors> steps;

  int64_t bytes() const;  // That it takes, about.
};

// Operands of one schedule's steps, ready for kernels: dimensions and addresses are set as a run
// goes.
struct ScheduleState {
  uint64_t schedule = 0;                  // Its id.
  std::vector<Tensor> tensors;            // Per step in order (user's, ads'): inputs, then outputs.
  std::vector<int> user_first, ad_first;  // Per step: its first tensor.
};

// Where the ids of a feature's row `row` begin.
struct IdCursor {
  int64_t row = 0, id = 0;
};

// What the ads' part of a request reads: the request and what was computed of its users.
struct UserPart {
  const Executable* executable = nullptr;
  const Schedule* schedule = nullptr;
  // Whose both are, or null; another one may replace it.
  std::shared_ptr<const ShapePlan> of_shape;
  Request request;
  int64_t users = 0, ads = 0;             // Of the request.
  int64_t first_user = 0, last_user = 0;  // The group of users that is computed: [first, last).
  std::vector<int64_t> begins;            // Ads of user u: [begins[u], begins[u + 1]).
  std::vector<char*> base;  // Per value: row 0 of an input; the first user's row; a constant.
  Arena arena, outputs;
};

// The ads of a tile while those that the cache lacks are computed apart.
struct ItemState {
  std::vector<const char*> columns;      // Per Schedule::item_inputs: where the tile's rows are.
  std::vector<KeptKey> keys;             // Per ad.
  std::vector<uint8_t> found;            // Per ad: whether the cache has it.
  std::vector<int32_t> missing, source;  // Ads to compute; per ad its place there, or -1.
  std::vector<KeptKey> missing_keys;
  std::vector<int32_t> places;
  std::vector<std::vector<char>> gathered;  // Per Schedule::item_inputs: rows of the missing ads.
  AdCache::Work work;
  UserPart part;  // The missing ads, and
  Arena ads;      // what is computed of them.
};

struct WorkspaceState {
  // Enough for a few models with their usual kinds of requests; the least recently used goes first.
  static constexpr size_t kMaxBindings = 32;
  static constexpr int64_t kMaxBindingBytes = int64_t{2} << 20;  // Or one, however large.
  static constexpr size_t kMaxSchedules = 64;

  // As the most recently used one.
  Binding& Keep(Binding binding);

  UserPart user;  // The request.
  Arena ads, scratch;
  RunCounters counters;
  ItemState items;
  std::vector<IdCursor> cursors;                          // Per feature.
  std::vector<std::unique_ptr<ScheduleState>> schedules;  // Most recently used first.
  std::vector<int> order;  // Per tensor of the last request: the input that it was.

  // For requests that run by numpy's rules.
  Arena general;
  std::list<Binding> bindings;  // Most recently used first.
  std::vector<void*> data;      // Per value: where it lies.
  std::vector<int64_t> key;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_WORKSPACE_H_
