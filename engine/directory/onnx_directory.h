// Version directories that the daemon converts.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_DIRECTORY_ONNX_DIRECTORY_H_
#define ULFD_ENGINE_DIRECTORY_ONNX_DIRECTORY_H_

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "engine/directory/model_directory.h"

namespace ulfd::engine {

inline constexpr char kOnnxFile[] = "model.onnx";

// Whether the version directory has a model.onnx, and no graph of ours.
inline bool IsOnnxDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path + "/" + kOnnxFile, error) &&
         absl::IsNotFound(OpenModelDirectory(path).status());
}

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_DIRECTORY_ONNX_DIRECTORY_H_
