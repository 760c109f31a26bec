// Versions that are a model.onnx: ulf-convert, a program of its own beside the daemon, makes a
// version directory of each before it is loaded, and the same content is not converted again.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_ONNX_CONVERSION_H_
#define ULFD_SERVER_MODELS_ONNX_CONVERSION_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/directory/directory_tree.h"

namespace ulfd::server {

// Thread-compatible: the loader thread's.
class OnnxConversion {
 public:
  // `directory`: where what is converted is kept, of this daemon alone; it exists.  What the run
  // before left half done is removed.  UNIMPLEMENTED: a build without (ULFD_ONNX);
  // FAILED_PRECONDITION: the directory cannot be written, or ulf-convert is not beside the daemon.
  static absl::StatusOr<std::unique_ptr<OnnxConversion>> Create(std::string directory);

  // The version directory made of `source`, of now or of an earlier run, with the converter's
  // conversion_report.txt in it.  A file schema.csv in `source` names the columns of a model with
  // one matrix.  Within the limits of the load of this thread.  INVALID_ARGUMENT: it cannot be
  // converted (names the node), or has a manifest; UNAVAILABLE: something of the system failed, or
  // another process converts there; CANCELLED: the load had to end.
  absl::StatusOr<std::string> Convert(const std::string& source,
                                      const engine::DirectoryRules& rules) const;

 private:
  OnnxConversion(std::string directory, std::string program)
      : directory_(std::move(directory)), program_(std::move(program)) {}

  absl::Status Run(const std::string& source, const std::string& out,
                   const engine::DirectoryRules& rules) const;
  // Removes what was made of versions that are gone, or that are something else by now.
  void RemoveLeftovers(const std::string& source, const std::string& kept) const;

  const std::string directory_, program_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_ONNX_CONVERSION_H_
