// What the engine takes of oneDNN beside convolution (onednn_convolution.h) and products
// (onednn_product.h): elementwise functions, and the OpenMP threads.  dnnl::error stops here.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_TENSOR_ONEDNN_H_
#define ULFD_ENGINE_TENSOR_ONEDNN_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ulfd::engine {

// Gives the calling thread one OpenMP thread.  Every thread that runs a kernel calls this first:
// Debian's oneDNN is built on OpenMP and, with OMP_THREAD_LIMIT or OMP_DYNAMIC set, silently leaves
// output unwritten otherwise.
void UseOneThread();
// Whether UseOneThread has taken effect on the calling thread.
bool UsesOneThread();

// One OpenMP thread while it lives: a primitive remembers how many there were when it was made, and
// starts as many when it runs.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_;
};

// An elementwise function, made once and run on any number of elements.  Immutable; any thread may
// Run it.
//
// oneDNN 2.6 has no run-time sizes for this primitive, so it is made for a few fixed sizes that add
// up to any other; the last few elements go through a small buffer.
class Eltwise {
 public:
  enum class Function : uint8_t {
    kSigmoid,  // 1 / (1 + exp(-x)); 0 and 1 at the infinities.
    kTanh,
    kExp,  // 0 for x below -87.3, infinity above 88.7.
  };
  // Slow (about 0.1 ms per size the first time).
  static absl::StatusOr<std::unique_ptr<const Eltwise>> Create(Function function);
  virtual ~Eltwise() = default;
  // y[i] = f(x[i]) for i < n, any alignment, within 1e-6 of the exact value (kExp: relative).  NaN
  // gives NaN.  y may be x, except for kExp (whose NaNs are put back from x).  REQUIRES:
  // UsesOneThread().
  virtual absl::Status Run(const float* x, float* y, int64_t n) const = 0;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_TENSOR_ONEDNN_H_
