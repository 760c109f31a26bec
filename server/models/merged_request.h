// MergedRequest: several requests of one model as one request of several users, and the result of
// that cut up again.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_MERGED_REQUEST_H_
#define ULFD_SERVER_MODELS_MERGED_REQUEST_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/runtime/model.h"

namespace ulfd::server {

// Whether results of merged requests can be cut up: every output has a row per user or per ad, or
// is the same for everybody, and the model computes users together.  Of outputs that only a plan
// for shapes of requests knows, Cut tells.
bool CanMerge(const engine::Model& model);

// For one batch; not thread-safe.
class MergedRequest {
 public:
  // One request of one user: what Model::Run would get.
  struct Part {
    absl::Span<const engine::NamedTensor> inputs;
    int64_t ads = 0;
    // RunOptions::fetched; all parts have it, or none.
    const engine::FetchedRows* fetched = nullptr;
  };

  // Copies the parts' inputs one behind the other.  INVALID_ARGUMENT: they do not fit together
  // (other inputs, other widths), which says nothing against any of them.  REQUIRES: CanMerge.
  absl::Status Join(const engine::Model& model, absl::Span<const Part> parts);

  // For Model::Run; valid until the next Join.
  absl::Span<const engine::NamedTensor> inputs() const { return inputs_; }
  absl::Span<const int64_t> ads_per_user() const { return ads_; }
  const engine::FetchedRows* fetched() const {
    return fetched_.tables.empty() ? nullptr : &fetched_;
  }

  // Makes `one` the result of part `index` in that of the batch, `all`, into which its outputs
  // point.  Times are those of the batch.  INTERNAL: `all` has other rows than it should have.
  absl::Status Cut(const engine::ModelInfo& info, const engine::RunResult& all, int64_t index,
                   engine::RunResult& one) const;

 private:
  // The tensors of one model input, by part; null: not given.
  using Column = std::vector<const engine::Tensor*>;

  absl::Status Arrange(const engine::Model& model, absl::Span<const Part> parts);
  absl::Status JoinDense(const engine::InputInfo& input, const Column& column);
  absl::Status JoinFeature(const engine::ModelInfo& info, const engine::FeatureInfo& feature);
  void JoinValues(const engine::InputInfo& input, const Column& values, const Column& ids);
  void JoinSegments(const engine::InputInfo& input, engine::Level level, const Column& segments,
                    const Column& ids);
  void Add(const engine::InputInfo& input, engine::TensorDims dims, std::vector<char> data);

  std::vector<Column> columns_;  // Per input of the model.
  std::vector<std::vector<char>> data_;
  std::vector<engine::NamedTensor> inputs_;
  engine::FetchedRows fetched_;        // Those of the parts, which keep them.
  std::vector<int64_t> ads_, begins_;  // Per user; its first row of ads, and the number of all.
};

// Splits the counts of ids that tables lack, which a run tells for the whole batch, among its parts
// by what each part asks for and, of tables in stores, by the rows that the run had
// (MergedRequest::fetched): a part whose row another one found is not without it.
void ShareMissingIds(const engine::Model& model, absl::Span<const MergedRequest::Part> parts,
                     const engine::FetchedRows* fetched, absl::Span<const int64_t> missing,
                     std::vector<std::vector<int64_t>>& missing_of);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_MERGED_REQUEST_H_
