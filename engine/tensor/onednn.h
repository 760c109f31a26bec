// The OpenMP threads of oneDNN, whose primitives are in onednn_convolution.h and onednn_product.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_TENSOR_ONEDNN_H_
#define ULFD_ENGINE_TENSOR_ONEDNN_H_

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

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_TENSOR_ONEDNN_H_
