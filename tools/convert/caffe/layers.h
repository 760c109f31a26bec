// One converter per Caffe layer type.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_CAFFE_LAYERS_H_
#define ULFD_TOOLS_CONVERT_CAFFE_LAYERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tools/convert/caffe/caffe.pb.h"
#include "tools/convert/caffe/reader.h"
#include "tools/convert/graph_builder.h"

namespace ulfd::convert {

// What a converter works on.  Bottoms and tops are tensors of the builder.
struct CaffeNode {
  GraphBuilder& builder;
  const caffe::LayerParameter& layer;
  absl::Span<const CaffeBlob> blobs;
  std::vector<std::string> bottoms, tops;
  // BatchNorm only: the Scale layer behind it that is made part of the same bn_layer, or null.
  const caffe::LayerParameter* scale = nullptr;
  absl::Span<const CaffeBlob> scale_blobs;
  std::string note;  // For the report.

  const std::string& in(int i = 0) const { return bottoms[static_cast<size_t>(i)]; }
  const std::string& out(int i = 0) const { return tops[static_cast<size_t>(i)]; }
  const engine::Shape& shape(int i = 0) const { return builder.Find(in(i))->shape; }
  int rank(int i = 0) const { return shape(i).rank(); }
  // The parameter as an index, counted from the end if negative.  INVALID_ARGUMENT names `field`.
  absl::StatusOr<int> Axis(absl::string_view field, int64_t axis, int i = 0) const;
  // INVALID_ARGUMENT unless the caffemodel has so many blobs; `what`: which.
  absl::Status WantBlobs(size_t wanted, absl::string_view what) const;
  // The same of a layer with weights.
  absl::Status WantWeightAndBias(bool bias_term) const;
};

struct Count {
  int min = 0, max = 0;
};
inline constexpr int kMany = 1 << 10;

// One row per layer type.
struct CaffeType {
  absl::string_view name;
  Count bottoms, tops, blobs;
  absl::Status (*convert)(CaffeNode& node) = nullptr;
};

// Null for a type that no converter knows.
const CaffeType* FindCaffeType(absl::string_view name);

// The tables behind it.
absl::Span<const CaffeType> BasicCaffeTypes();   // caffe_basic.cc
absl::Span<const CaffeType> ShapeCaffeTypes();   // caffe_shape.cc
absl::Span<const CaffeType> VisionCaffeTypes();  // caffe_vision.cc

// Types that need no layer: their tops are their bottom.
bool IsCaffePassThrough(absl::string_view type);  // Dropout, Split
// Types that compute nothing that a request could ask for.
bool IsCaffeTrainingOnly(absl::string_view type);  // Silence, Accuracy

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_CAFFE_LAYERS_H_
