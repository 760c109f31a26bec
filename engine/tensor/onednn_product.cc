// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/onednn_product.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/load_scope.h"
#include "engine/tensor/onednn.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace ulfd::engine {
namespace {

using Tag = dnnl::memory::format_tag;
constexpr auto kFloat = dnnl::memory::data_type::f32;

class Primitives final : public OneDnnProduct {
 public:
  // Throws dnnl::error.
  Primitives(const float* w, int64_t k, int64_t n)
      : k_(k), n_(n), engine_(dnnl::engine::kind::cpu, 0), bias_desc_({1, n}, kFloat, Tag::ab) {
    const OneThread one_thread;
    dnnl::memory::desc layout({k, n}, kFloat, Tag::any);
    for (int64_t rows = kMaxRows; rows >= 1; rows /= 4) {
      Batch batch{.rows = rows,
                  .src = dnnl::memory::desc({rows, k}, kFloat, Tag::ab),
                  .dst = dnnl::memory::desc({rows, n}, kFloat, Tag::ab)};
      for (const bool sum : {false, true}) {
        dnnl::primitive_attr attributes;
        attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        if (sum) {
          dnnl::post_ops post_ops;
          post_ops.append_sum();
          attributes.set_post_ops(post_ops);
        }
        const dnnl::matmul::desc op =
            sum ? dnnl::matmul::desc(batch.src, layout, batch.dst)
                : dnnl::matmul::desc(batch.src, layout, bias_desc_, batch.dst);
        const dnnl::matmul::primitive_desc described(op, attributes, engine_);
        batch.products[sum] = dnnl::matmul(described);
        batch.scratchpads[sum] = described.scratchpad_desc();
        scratch_bytes_ = std::max(scratch_bytes_, batch.scratchpads[sum].get_size());
        layout = described.weights_desc();  // What the largest batch likes is right for all.
      }
      batches_.push_back(std::move(batch));
    }
    if (!LoadScope::Charge(static_cast<int64_t>(layout.get_size())).ok()) throw std::bad_alloc();
    weights_ = dnnl::memory(layout, engine_);
    dnnl::memory plain({{k, n}, kFloat, Tag::ab}, engine_, const_cast<float*>(w));
    dnnl::stream stream(engine_);
    dnnl::reorder(plain, weights_).execute(stream, plain, weights_);
    stream.wait();
  }

  absl::Status Run(const float* x, int64_t rows, const float* bias, float* y,
                   void* scratch) const override {
    assert(UsesOneThread());
    const bool sum = bias == nullptr;
    try {
      dnnl::stream stream(engine_);
      std::unordered_map<int, dnnl::memory> arguments = {{DNNL_ARG_WEIGHTS, weights_}};
      if (!sum) {
        arguments[DNNL_ARG_BIAS] = dnnl::memory(bias_desc_, engine_, const_cast<float*>(bias));
      }
      for (const Batch& batch : batches_) {
        if (rows < batch.rows) continue;
        arguments[DNNL_ARG_SRC] = dnnl::memory(batch.src, engine_, const_cast<float*>(x));
        arguments[DNNL_ARG_DST] = dnnl::memory(batch.dst, engine_, y);
        arguments[DNNL_ARG_SCRATCHPAD] = dnnl::memory(batch.scratchpads[sum], engine_, scratch);
        for (; rows >= batch.rows; rows -= batch.rows) {
          arguments[DNNL_ARG_SRC].set_data_handle(const_cast<float*>(x));
          arguments[DNNL_ARG_DST].set_data_handle(y);
          batch.products[sum].execute(stream, arguments);
          x += batch.rows * k_;
          y += batch.rows * n_;
        }
      }
    } catch (const dnnl::error& e) {
      return Internal("oneDNN product: ", e.message);
    }
    return absl::OkStatus();
  }

  size_t scratch_bytes() const override { return scratch_bytes_; }
  int64_t bytes() const override { return static_cast<int64_t>(weights_.get_desc().get_size()); }

 private:
  // Primitives for so many rows: with a bias, and adding to y.
  struct Batch {
    int64_t rows = 0;
    dnnl::memory::desc src, dst;
    dnnl::matmul products[2];
    dnnl::memory::desc scratchpads[2];
  };

  const int64_t k_, n_;
  const dnnl::engine engine_;
  const dnnl::memory::desc bias_desc_;
  std::vector<Batch> batches_;  // Largest first.
  size_t scratch_bytes_ = 0;
  dnnl::memory weights_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const OneDnnProduct>> OneDnnProduct::Create(const float* w,
                                                                           int64_t k, int64_t n) {
  try {
    // Its cache of primitives must not be left by an exception.
    const LoadScope::WithoutRefusals no_exceptions;
    return std::unique_ptr<const OneDnnProduct>(new Primitives(w, k, n));
  } catch (const dnnl::error& e) {
    return Internal("oneDNN product: ", e.message);
  }
}

}  // namespace ulfd::engine
