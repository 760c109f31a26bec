// What is known of a loaded model: its inputs, features, outputs, tables and layers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_PLAN_MODEL_INFO_H_
#define ULFD_ENGINE_PLAN_MODEL_INFO_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/graph/rewrite.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

// A graph input.
struct InputInfo {
  std::string name;  // "mid.ids", "mask", "comm"
  DType dtype = DType::kFloat32;
  // What is known of its shape; guesses from its use where nothing states it (see `stated`).
  Shape shape;
  Level level = Level::kUnknown;
  // Whether shape and level follow from the graph or the manifest rather than from a guess.
  bool stated = false;
  // Whether the dimensions after the rows do, at least.
  bool shape_stated = false;
  // Read by some layer.  An input that no layer reads may be left out of a request.
  bool used = false;
  // Ids and values read by embedding layers only: their length is no part of any shape.
  bool free_length = false;
  ValueId value = kNoValue;  // In the graph, and in every plan of it.
  // Index into ModelInfo::features for f.ids, f.values and f.segments; -1 for a dense input.
  int feature = -1;
  // Not 0: values are whole numbers of a magnitude below this.
  int64_t integers_below = 0;

  // Values of one row, if they are known; else 0.
  int64_t RowWidth() const;
  // Of a request's rows of so many values: as the model has them, if they fit, else flat.
  TensorDims DimsOf(int64_t rows, int64_t width) const;
  // To rows in front, [rows, ...], from what models have that know no rows: one number for each row
  // is [rows], the user's row lacks its axis, and the ads' rows stand behind a batch of one.
  void FitRows(TensorDims& dims) const;
};

// A sparse feature: the three inputs f.ids [n] int64, f.values [n] float32, f.segments [rows] int32
// (ids per row).
struct FeatureInfo {
  std::string name;  // "mid"
  // What a request may call all of it as one matrix of ids [rows, n]; empty where an input, or a
  // matrix of several, has that name.  Rows are filled up with `padding_id`, if there is one.
  std::string matrix;
  std::optional<int64_t> padding_id;
  int32_t max_ids_per_row = 0;  // 0: any number.
  Level level = Level::kUnknown;
  int ids = -1, values = -1, segments = -1;  // Indices into ModelInfo::inputs.
  std::vector<int> tables;                   // Indices into ModelInfo::tables.
};

// A tensor [rows, ...] that a request may send for several inputs and features, or for all of one
// feature.
struct MatrixInfo {
  struct Part {
    int feature = -1, input = -1;  // Of ModelInfo; one of them.
    std::vector<int64_t> columns;  // Its elements of a row; none: all, as many as there are.
  };
  std::string name;
  int64_t columns = 0;  // Elements of a row; 0: any number.
  std::vector<Part> parts;
};

// A matrix of so many elements in each row to [rows, columns], as InputInfo::FitRows does.
// REQUIRES: columns > 0.
void FitMatrix(int64_t columns, TensorDims& dims);

struct OutputInfo {
  std::string name;
  Shape shape;
  Level level = Level::kUnknown;
};

struct TableInfo {
  std::string name;
  int64_t rows = 0, dim = 0, bytes = 0;
  int64_t mapped_bytes = 0;  // Of a table file, beside `bytes`.
  // Of the deltas since the base was made or folded, beside the others.
  int64_t overlay_rows = 0, overlay_bytes = 0;
  bool stored = false;  // Rows lie in a store; `bytes` is what may come to be in memory.
};

struct WeightInfo {
  std::string name;
  std::vector<int64_t> dims;
};

// One layer as it stands in the file, for `ulf inspect`.
struct LayerInfo {
  int index = 0;  // In the file, from 0.
  std::string name, type, parameters;
  std::vector<std::string> bottoms, tops;
  std::vector<Shape> top_shapes;
  std::vector<Level> top_levels;
  std::vector<WeightInfo> weights;
};

struct ModelInfo {
  std::string name;     // As given in LoadOptions.
  int64_t version = 0;  // As given in LoadOptions.
  std::string graph_file, weights_file, weights_format;
  std::string content_hash;  // Hex; of everything that was read.
  int64_t epoch = 0;         // Of the last delta; 0: none.
  // Up to when its deltas are true; the epoch of the clock: no delta.
  std::chrono::system_clock::time_point event_time;
  int64_t folds = 0;              // Tables folded since it was loaded.
  std::vector<InputInfo> inputs;  // In the order of the graph.
  std::vector<FeatureInfo> features;
  std::vector<MatrixInfo> matrices;  // Those of features among them.
  std::vector<OutputInfo> outputs;
  std::vector<TableInfo> tables;
  std::vector<LayerInfo> layers;
  std::vector<std::string> notices;
  // How long a request waits for rows of stores, at most; 0: no table has one.
  std::chrono::milliseconds fetch_timeout{0};
  int64_t weight_bytes = 0, table_bytes = 0;
  int64_t memory_bytes = 0;      // Everything the model holds after Load; see Model::memory_bytes.
  int64_t ad_cache_bytes = 0;    // The same of the cache of ads.
  int64_t user_cache_bytes = 0;  // The most that the cache of users holds; 0: there is none.
  // Floating-point operations that a user or an ad found in these caches saves; 0 where shapes are
  // known only from requests.
  double user_hit_flops = 0, ad_hit_flops = 0;
  // Whether the proof holds that every ad's rows are independent, so that a request may be cut into
  // tiles of ads.
  bool row_separable = false;
  // Which layer defeats the proof that the rows of a user or ad depend on no others, and why: such
  // a model computes a request in one piece, of one user.  Empty if the proof holds (for
  // requests of the shapes that the graph tells).
  std::string proof_failure;
  // Why the graph is executed as it is written; empty if it was optimised.
  std::string not_optimised;
  std::vector<Rewrite> rewrites;  // What the optimiser did, in order.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_PLAN_MODEL_INFO_H_
