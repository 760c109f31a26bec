// The weights of a model: read from any of the four file formats, matched to layers by name or by
// arg_names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_WEIGHTS_WEIGHTS_H_
#define ULFD_ENGINE_WEIGHTS_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "proto/ulf.pb.h"

namespace ulfd::engine {

// One weight array: float32, row-major.  `data` is owned by the WeightFile that it came from.
struct Weight {
  std::string name;  // arg_name, or "weight 2" where the file has no names.
  absl::InlinedVector<int64_t, 4> dims;
  absl::Span<const float> data;

  int rank() const { return static_cast<int>(dims.size()); }
};
using LayerWeights = absl::Span<const Weight>;

// A weight file in memory.  Only Release changes it after Read.
class WeightFile {
 public:
  virtual ~WeightFile() = default;

  // Reads `path`; the format (npz, MXNet NDArray list, ulf.NetWeightsParameter binary or text) is
  // recognised by content.  float16, float64, int32 and int64 arrays are converted to float32.
  // Errors name the file and, inside it, the array or layer, what was found and what was wanted;
  // truncated or oversized files are errors, never crashes.
  static absl::StatusOr<std::unique_ptr<WeightFile>> Read(const std::string& path);
  // No weights at all, for graphs that need none.
  static std::unique_ptr<WeightFile> Empty();

  // The weights of each layer of `net`, by index: for files with names (npz, NDArray list) those
  // that the layer's arg_names list; for NetWeightsParameter those of the layer's name.  Errors: an
  // arg_name that the file lacks, weights of a layer that `net` lacks, a layer given twice.  The
  // spans stay valid as long as this object.
  virtual absl::StatusOr<std::vector<std::vector<Weight>>> Match(
      const ulf::NetParameter& net) const = 0;

  // Frees those of these arrays that are there, by where Match says their data lie; what it said of
  // them is not valid any more.  Returns how many bytes of data they had.
  virtual int64_t Release(const HashSet<const float*>& arrays) = 0;

  // Array data of the file, in bytes.
  virtual int64_t bytes() const = 0;
  // "npz", "ndarray list", "ulf binary", "ulf text" or "none".
  virtual std::string format() const = 0;
  // Arrays that hold NaN or infinity, by name, for a notice.
  virtual std::vector<std::string> NonFiniteArrays() const = 0;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_WEIGHTS_WEIGHTS_H_
