// oneDNN's elementwise functions, and its threads.
// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/onednn.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/load_scope.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace ulfd::engine {

void UseOneThread() { omp_set_num_threads(1); }

bool UsesOneThread() { return omp_get_max_threads() == 1; }

OneThread::OneThread() : before_(omp_get_max_threads()) { UseOneThread(); }
OneThread::~OneThread() { omp_set_num_threads(before_); }

namespace {

dnnl::algorithm AlgorithmOf(Eltwise::Function function) {
  switch (function) {
    case Eltwise::Function::kSigmoid:
      return dnnl::algorithm::eltwise_logistic;
    case Eltwise::Function::kTanh:
      return dnnl::algorithm::eltwise_tanh;
    case Eltwise::Function::kExp:
      break;
  }
  return dnnl::algorithm::eltwise_exp;
}

class EltwisePrimitives final : public Eltwise {
 public:
  // Throws dnnl::error.
  explicit EltwisePrimitives(Function function)
      : restore_nan_(function == Function::kExp), engine_(dnnl::engine::kind::cpu, 0) {
    for (int64_t size : kSizes) {
      const dnnl::memory::desc desc({size}, dnnl::memory::data_type::f32,
                                    dnnl::memory::format_tag::a);
      const dnnl::eltwise_forward::desc op(dnnl::prop_kind::forward_inference,
                                           AlgorithmOf(function), desc, 0.0f, 0.0f);
      steps_.push_back(
          {size, desc, dnnl::eltwise_forward(dnnl::eltwise_forward::primitive_desc(op, engine_))});
    }
  }

  absl::Status Run(const float* x, float* y, int64_t n) const override {
    assert(UsesOneThread());
    assert(!restore_nan_ || x != y);
    try {
      dnnl::stream stream(engine_);
      int64_t done = 0;
      for (const Step& step : steps_) {
        const int64_t count = (n - done) / step.size;
        if (count > 0) Execute(step, stream, x + done, y + done, count);
        done += count * step.size;
        // What is left over goes through a buffer, at once if the smaller sizes would take more
        // calls.
        const int64_t left = n - done;
        if (left > 0 && step.size <= kBuffer &&
            (left >= step.size / 2 || &step == &steps_.back())) {
          std::array<float, kBuffer> buffer{};
          std::copy_n(x + done, left, buffer.data());
          Execute(step, stream, buffer.data(), buffer.data(), 1);
          std::copy_n(buffer.data(), left, y + done);
          break;
        }
      }
    } catch (const dnnl::error& e) {
      return absl::InternalError(absl::StrCat("oneDNN eltwise: ", e.message));
    }
    // oneDNN's exp turns NaN into infinity.
    for (int64_t i = 0; restore_nan_ && i < n; ++i) y[i] = x[i] == x[i] ? y[i] : x[i];
    return absl::OkStatus();
  }

 private:
  // Largest first.
  static constexpr std::array<int64_t, 3> kSizes = {8192, 1024, 128};
  static constexpr int64_t kBuffer = 1024;

  struct Step {
    int64_t size;
    dnnl::memory::desc desc;
    dnnl::eltwise_forward primitive;
  };

  void Execute(const Step& step, dnnl::stream& stream, const float* x, float* y,
               int64_t count) const {
    dnnl::memory src(step.desc, engine_, const_cast<float*>(x));
    dnnl::memory dst(step.desc, engine_, y);
    for (int64_t i = 0; i < count; ++i) {
      src.set_data_handle(const_cast<float*>(x + i * step.size));
      dst.set_data_handle(y + i * step.size);
      step.primitive.execute(stream, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}});
    }
  }

  const bool restore_nan_;
  const dnnl::engine engine_;
  std::vector<Step> steps_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Eltwise>> Eltwise::Create(Function function) {
  try {
    // Its cache of primitives must not be left by one.
    const LoadScope::WithoutRefusals no_exceptions;
    return std::unique_ptr<const Eltwise>(new EltwisePrimitives(function));
  } catch (const dnnl::error& e) {
    return absl::InternalError(absl::StrCat("oneDNN eltwise: ", e.message));
  }
}

}  // namespace ulfd::engine
