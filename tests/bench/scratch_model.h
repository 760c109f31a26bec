// Models that the benchmarks write to a temporary directory, and requests made up for any model.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_SCRATCH_MODEL_H_
#define ULFD_TESTS_BENCH_SCRATCH_MODEL_H_

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/runtime/model.h"
#include "proto/ulf.pb.h"

namespace ulfd::bench {

// A directory that goes away with the object.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Collects the files of one version directory.  Weights and tables are random with a fixed seed.
class ScratchModel {
 public:
  // What models are loaded with; nothing: what the engine does by default.
  inline static std::optional<engine::Backend> backend;

  // A graph input; `dims` are those after the rows.  `user`: one row, otherwise one per ad.
  void Input(absl::string_view name, std::initializer_list<int64_t> dims, bool user = false);
  // A sparse feature with a table of its own ("<name>_table") of `rows` rows.
  void Feature(absl::string_view name, int64_t dim, int64_t rows);
  // One embedding layer over `features`, a block each: "udf_type: 0" or whatever `settings` says.
  void Embedding(std::initializer_list<absl::string_view> features,
                 std::initializer_list<absl::string_view> tops, absl::string_view settings,
                 bool user);
  // A layer with weights of these shapes, in +-0.2; variances of bn and dice in 0.5 +- 0.2.
  void Layer(absl::string_view type, std::initializer_list<absl::string_view> bottoms,
             absl::string_view top, absl::string_view param = "",
             std::initializer_list<std::vector<int32_t>> weights = {});
  // trees_layer: complete trees of random splits, of leaves in +-0.2.
  void Trees(absl::string_view bottom, absl::string_view top, int64_t features, int64_t trees,
             int depth);
  // A line of the manifest.
  void Manifest(absl::string_view line) { absl::StrAppend(&manifest_, line, "\n"); }
  // Writes everything and loads it.
  absl::StatusOr<std::unique_ptr<const engine::Model>> Load(const std::string& directory);

 private:
  float Random() { return uniform_(random_); }

  std::string inputs_, graph_, manifest_, files_;
  struct SparseFeature {
    std::string name;
    int64_t dim, rows;
  };
  std::vector<SparseFeature> features_;
  std::vector<std::pair<std::string, std::string>> confs_;
  ulf::NetWeightsParameter weights_;
  int layers_ = 0;
  std::mt19937 random_{7};
  std::uniform_real_distribution<float> uniform_{-0.2f, 0.2f};
};

// A request for a loaded model: every id exists in tables of at least `table_rows` rows numbered
// from 0, and every int32 input is 1.  Dense inputs take the shapes that the model states.
class MadeUpRequest {
 public:
  // A user feature gets `ids_per_user` ids if its name ends in "list", else one.  `ids`: the ids to
  // choose from, if not those of numbered rows.
  MadeUpRequest(const engine::ModelInfo& info, int64_t ads, int64_t ids_per_user,
                int64_t table_rows, absl::Span<const int64_t> ids = {});
  absl::Span<const engine::NamedTensor> inputs() const { return inputs_; }

 private:
  std::vector<engine::NamedTensor> inputs_;
  std::deque<std::vector<int64_t>> ids_;
  std::deque<std::vector<int32_t>> counts_;
  std::deque<std::vector<float>> values_;
};

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_SCRATCH_MODEL_H_
