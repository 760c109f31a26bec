// What one worker keeps between runs: arenas, and shapes worked out for recent kinds of requests.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_WORKSPACE_H_
#define ULFD_ENGINE_RUNTIME_WORKSPACE_H_

#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <vector>

#include "engine/runtime/model.h"
#include "engine/runtime/plan.h"

namespace ulfd::engine {

// A block of memory that grows on demand; contents are lost when it grows.  64-byte aligned.
class Arena {
 public:
  void* Reserve(int64_t bytes);
  void Release();
  void* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
  int64_t bytes_ = 0;
};

// A plan with numbers: concrete shapes of every value for one kind of request, and where each value
// lies.
struct Binding {
  std::vector<int64_t> key;
  std::weak_ptr<const void> model;  // Whose plan; expired once the model is gone.
  std::vector<TensorDims> dims;     // Per value.
  ArenaLayout user, ads;
  int64_t scratch_bytes = 0;
  // Per step: views with dims set; data is set on each run.
  struct StepTensors {
    std::vector<Tensor> in, out;
  };
  std::vector<StepTensors> steps;
};

struct WorkspaceState {
  // Enough for a few models with their usual tile and tail sizes; the least recently used goes
  // first.
  static constexpr size_t kMaxBindings = 32;

  Arena user, ads, scratch, outputs;
  std::list<Binding> bindings;  // Most recently used first.
  RunCounters counters;
  std::vector<const Tensor*> given;            // Per input of the model: what the request gave.
  std::vector<Tensor> inputs;                  // Per input: after defaults are filled in.
  std::vector<std::vector<int32_t>> segments;  // Per input: made-up segments.
  std::vector<int64_t> id_offset;  // Per input (ids and values): first element of the tile.
  std::vector<void*> data;         // Per value: where it lies in this tile.
  std::vector<int64_t> key;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_WORKSPACE_H_
