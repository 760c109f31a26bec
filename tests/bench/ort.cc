// ONNX Runtime through its C ABI.
// SPDX-License-Identifier: Apache-2.0
//
// The table of functions only ever grows at its end, so the places of version 13 hold for every
// later library.  No header of ONNX Runtime is needed.
#include "tests/bench/ort.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ulfd::bench {
namespace {

constexpr uint32_t kApiVersion = 13;

// Places in the table.
enum Slot {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSession = 7,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetGraphOptimizationLevel = 23,
  kSetIntraOpThreads = 24,
  kSetInterOpThreads = 25,
  kCreateTensorWithData = 49,
  kCreateCpuMemoryInfo = 69,
  kReleaseEnv = 92,
  kReleaseStatus = 93,
  kReleaseMemoryInfo = 94,
  kReleaseSession = 95,
  kReleaseValue = 96,
  kReleaseSessionOptions = 100,
};

// Values of the interface's enumerations.
constexpr int kLogError = 3;
constexpr int kEnableAllOptimizations = 99;
constexpr int kArenaAllocator = 1;
constexpr int kDefaultMemory = 0;
constexpr int kFloat = 1, kInt32 = 6, kInt64 = 7;

int ElementType(engine::DType dtype) {
  switch (dtype) {
    case engine::DType::kFloat32:
      return kFloat;
    case engine::DType::kInt32:
      return kInt32;
    case engine::DType::kInt64:
      return kInt64;
  }
  return 0;
}

struct ApiBase {
  const void* (*get_api)(uint32_t version);
  const char* (*get_version)();
};

}  // namespace

absl::StatusOr<std::unique_ptr<OrtLibrary>> OrtLibrary::Open(const std::string& path) {
  std::unique_ptr<OrtLibrary> library(new OrtLibrary());
  library->handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library->handle_ == nullptr) return absl::NotFoundError(dlerror());
  auto* base = reinterpret_cast<const ApiBase* (*)()>(dlsym(library->handle_, "OrtGetApiBase"));
  if (base == nullptr) return absl::NotFoundError(absl::StrCat(path, ": no OrtGetApiBase"));
  library->table_ = static_cast<void* const*>(base()->get_api(kApiVersion));
  library->version_ = base()->get_version();
  if (library->table_ == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, ": version ", library->version_,
                                            " does not offer interface ", kApiVersion));
  }
  RETURN_IF_ERROR(library->Check(library->Function<void*(int, const char*, void**)>(kCreateEnv)(
                                     kLogError, "bench", &library->env_),
                                 "CreateEnv"));
  RETURN_IF_ERROR(library->Check(library->Function<void*(int, int, void**)>(kCreateCpuMemoryInfo)(
                                     kArenaAllocator, kDefaultMemory, &library->memory_),
                                 "CreateCpuMemoryInfo"));
  return library;
}

OrtLibrary::~OrtLibrary() {
  Release(kReleaseMemoryInfo, memory_);
  Release(kReleaseEnv, env_);
}

void OrtLibrary::Release(int slot, void* object) const {
  if (object != nullptr) Function<void(void*)>(slot)(object);
}

absl::Status OrtLibrary::Check(void* status, absl::string_view doing) const {
  if (status == nullptr) return absl::OkStatus();
  const std::string message = Function<const char*(const void*)>(kGetErrorMessage)(status);
  Release(kReleaseStatus, status);
  return absl::InternalError(absl::StrCat("ONNX Runtime, ", doing, ": ", message));
}

absl::StatusOr<std::unique_ptr<OrtSession>> OrtLibrary::Load(const std::string& onnx_path) const {
  void* options = nullptr;
  RETURN_IF_ERROR(
      Check(Function<void*(void**)>(kCreateSessionOptions)(&options), "CreateSessionOptions"));
  std::unique_ptr<OrtSession> session(new OrtSession(*this));
  absl::Status status;
  for (const auto& [slot, value] : {std::pair{kSetGraphOptimizationLevel, kEnableAllOptimizations},
                                    {kSetIntraOpThreads, 1},
                                    {kSetInterOpThreads, 1}}) {
    status.Update(Check(Function<void*(void*, int)>(slot)(options, value), "session options"));
  }
  if (status.ok()) {
    status = Check(Function<void*(void*, const char*, void*, void**)>(kCreateSession)(
                       env_, onnx_path.c_str(), options, &session->session_),
                   onnx_path);
  }
  Release(kReleaseSessionOptions, options);
  RETURN_IF_ERROR(status);
  return session;
}

OrtSession::~OrtSession() {
  ReleaseValues();
  library_.Release(kReleaseSession, session_);
}

void OrtSession::ReleaseValues() {
  for (const std::vector<void*>* values : {&inputs_, &outputs_}) {
    for (void* value : *values) library_.Release(kReleaseValue, value);
  }
  inputs_.clear();
  outputs_.clear();
}

absl::StatusOr<void*> OrtSession::MakeValue(const engine::Tensor& tensor) const {
  void* value = nullptr;
  using Create = void*(void*, void*, size_t, const int64_t*, size_t, int, void**);
  RETURN_IF_ERROR(
      library_.Check(library_.Function<Create>(kCreateTensorWithData)(
                         library_.memory_, tensor.data, tensor.bytes(), tensor.dims.data(),
                         tensor.dims.size(), ElementType(tensor.dtype), &value),
                     "CreateTensorWithData"));
  return value;
}

absl::Status OrtSession::Bind(absl::Span<const engine::NamedTensor> inputs,
                              absl::Span<const engine::NamedTensor> outputs) {
  ReleaseValues();
  names_.clear();
  names_.reserve(inputs.size() + outputs.size());  // The pointers below stay valid.
  input_names_.clear();
  output_names_.clear();
  for (const engine::NamedTensor& input : inputs) {
    ASSIGN_OR_RETURN(void* value, MakeValue(input.tensor));
    inputs_.push_back(value);
    input_names_.push_back(names_.emplace_back(input.name).c_str());
  }
  for (const engine::NamedTensor& output : outputs) {
    ASSIGN_OR_RETURN(void* value, MakeValue(output.tensor));
    outputs_.push_back(value);
    output_names_.push_back(names_.emplace_back(output.name).c_str());
  }
  return absl::OkStatus();
}

absl::Status OrtSession::Run() {
  using RunFunction = void*(void*, const void*, const char* const*, void* const*, size_t,
                            const char* const*, size_t, void**);
  return library_.Check(library_.Function<RunFunction>(kRun)(
                            session_, nullptr, input_names_.data(), inputs_.data(), inputs_.size(),
                            output_names_.data(), outputs_.size(), outputs_.data()),
                        "Run");
}

}  // namespace ulfd::bench
