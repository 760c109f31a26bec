// Caffe files: a net in one form whatever its age, and the trained arrays of its layers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_CAFFE_READER_H_
#define ULFD_TOOLS_CONVERT_CAFFE_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/convert/caffe/caffe.pb.h"

namespace ulfd::convert {

// A trained array.
struct CaffeBlob {
  std::vector<int64_t> dims;
  std::vector<float> values;
};

struct CaffeNet {
  // Only `layer`: V1 layers are rewritten, inputs of the net are Input layers, layers of the
  // training phase are gone.
  caffe::NetParameter net;
  std::map<std::string, std::vector<CaffeBlob>> blobs;  // By layer name.
  std::vector<std::string> notes;
};

// Reads NET (text, or binary such as a caffemodel) and WEIGHTS (empty: the arrays that the net
// itself holds).  INVALID_ARGUMENT names file, line and column of text that does not parse, a
// truncated file, an array whose count differs from its shape, a net with both `layer` and
// `layers`, a V1 type that has no name; RESOURCE_EXHAUSTED a file above 2 GiB, protobuf's limit.
absl::StatusOr<CaffeNet> ReadCaffe(const std::string& net, const std::string& weights);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_CAFFE_READER_H_
