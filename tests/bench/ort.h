// ONNX Runtime, loaded at run time through its C ABI: the peer that the benchmarks measure against.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_ORT_H_
#define ULFD_TESTS_BENCH_ORT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/model.h"

namespace ulfd::bench {

class OrtLibrary;

// One loaded ONNX file with one set of inputs and outputs.  One thread at a time; Run works in the
// calling thread alone.
class OrtSession {
 public:
  ~OrtSession();
  OrtSession(const OrtSession&) = delete;
  OrtSession& operator=(const OrtSession&) = delete;

  // What Run reads and where it writes: dense row-major tensors whose names and memory are borrowed
  // until the next Bind.  Shapes and types are checked by Run.
  absl::Status Bind(absl::Span<const engine::NamedTensor> inputs,
                    absl::Span<const engine::NamedTensor> outputs);
  absl::Status Run();

 private:
  friend class OrtLibrary;
  explicit OrtSession(const OrtLibrary& library) : library_(library) {}
  absl::StatusOr<void*> MakeValue(const engine::Tensor& tensor) const;
  void ReleaseValues();

  const OrtLibrary& library_;
  void* session_ = nullptr;
  std::vector<std::string> names_;
  std::vector<const char*> input_names_, output_names_;
  std::vector<void*> inputs_, outputs_;  // OrtValue.
};

// The shared library and its environment; outlives its sessions.
class OrtLibrary {
 public:
  // NOT_FOUND if `path` is no library that can be loaded.
  static absl::StatusOr<std::unique_ptr<OrtLibrary>> Open(const std::string& path);
  ~OrtLibrary();
  OrtLibrary(const OrtLibrary&) = delete;
  OrtLibrary& operator=(const OrtLibrary&) = delete;

  // Loads an ONNX file with all graph optimisations for one thread.
  absl::StatusOr<std::unique_ptr<OrtSession>> Load(const std::string& onnx_path) const;
  // "1.30.0"
  const std::string& version() const { return version_; }

 private:
  friend class OrtSession;
  OrtLibrary() = default;
  // Entry `slot` of the C interface's function table as a function of type F.
  template <typename F>
  F* Function(int slot) const {
    return reinterpret_cast<F*>(table_[slot]);
  }
  // Turns an OrtStatus (nullptr: fine) into ours and releases it.
  absl::Status Check(void* status, absl::string_view doing) const;
  void Release(int slot, void* object) const;

  void* handle_ = nullptr;        // Of dlopen; never closed: its threads and statics stay.
  void* const* table_ = nullptr;  // OrtApi.
  void *env_ = nullptr, *memory_ = nullptr;
  std::string version_;
};

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_ORT_H_
