// A ULF model while it is being made: layers and weights are added one by one, and the engine's own
// inference gives each new tensor its shape at once, so that what does not fit is found at the node
// that caused it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_GRAPH_BUILDER_H_
#define ULFD_TOOLS_CONVERT_GRAPH_BUILDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "engine/tensor/tensor.h"
#include "proto/embedding.pb.h"
#include "proto/model_manifest.pb.h"
#include "proto/ulf.pb.h"

namespace ulfd::convert {

// A dense weight as the engine reads it.  REQUIRES: as many values as the product of dims.
ulf::BlobData MakeBlob(absl::Span<const int64_t> dims, absl::Span<const float> values);

// Rows of an embedding table, of the ids from `first` on.
struct TableSource {
  int64_t first = 0, rows = 0, dim = 0;
  // Fills `row` (dim values) with that of the id.
  std::function<void(int64_t id, float* row)> read;
};

// Everything that a version directory holds, in memory.
struct ConvertedModel {
  ulf::NetParameter net;
  ulf::NetWeightsParameter weights;
  ulfd::model::v1::ModelManifest manifest;
  std::map<std::string, blaze::EmbeddingConfig> embedding_confs;  // By file name.
  std::map<std::string, TableSource> tables;                      // By table name.
};

// Names are the caller's; a top that exists already replaces the tensor, as in the format.  Not
// thread-safe.
class GraphBuilder {
 public:
  explicit GraphBuilder(absl::string_view net_name);

  // A dense input [rows, row_shape...], stated in the manifest.  ALREADY_EXISTS for a second one of
  // that name.
  absl::Status AddInput(const std::string& name, engine::Level level,
                        absl::Span<const int64_t> row_shape, bool int64 = false);
  // The three inputs of a sparse feature.  Adding one again does nothing.
  void AddFeature(const std::string& name);

  // Appends a layer.  Its name is made unique if need be.  The error is the engine's: it names
  // bottom, weight or parameter, what was found and what was wanted, but not the layer.
  absl::Status AddLayer(ulf::LayerParameter layer, std::vector<ulf::BlobData> weights = {});
  // Appends an embedding layer whose conf is added by the caller (conf().embedding_confs); top k is
  // [rows, widths[k]].
  void AddEmbedding(ulf::LayerParameter layer, engine::Level level,
                    absl::Span<const int64_t> widths);

  // Null if there is no tensor of that name (yet).
  const engine::TensorSpec* Find(const std::string& tensor) const;
  // `base`, or "base.2", "base.3", ... if a tensor or an input has that name.
  std::string FreshTensor(absl::string_view base);
  // Reserves a name that a later node will make, so that FreshTensor does not give it away.
  void Reserve(const std::string& tensor) { reserved_.insert(tensor); }

  // Types of the layers added since the last call.
  std::vector<std::string> TakeAddedTypes();

  ConvertedModel& model() { return model_; }
  // Puts the input layer in front and gives the model away.
  ConvertedModel Finish() &&;

 private:
  absl::Status InferTops(const ulf::LayerParameter& layer,
                         const ulf::LayerWeightsParameter& weights);
  std::string FreshLayer(absl::string_view base);

  ConvertedModel model_;
  std::vector<std::string> input_tops_;
  HashMap<std::string, engine::TensorSpec> specs_;
  HashSet<std::string> reserved_, layer_names_;
  HashMap<std::string, int> last_tensor_, last_layer_;  // Numbers that made names, by base.
  std::vector<std::string> added_types_;
};

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_GRAPH_BUILDER_H_
