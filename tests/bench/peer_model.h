// One model in both engines: ours and, where it is there, ONNX Runtime with both of its exports.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_PEER_MODEL_H_
#define ULFD_TESTS_BENCH_PEER_MODEL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runtime/model.h"
#include "tests/bench/ort.h"
#include "tests/bench/scratch_model.h"
#include "tests/bench/targets.h"
#include "tests/bench/turns.h"

namespace ulfd::bench {

// A scratch model, loaded, exported and loaded again.
class PeerModel {
 public:
  // Writes the model that `build` describes under `name`, loads it and, if the context has ONNX
  // Runtime, exports and loads it there.  A model without user inputs has one export only.
  static absl::StatusOr<std::unique_ptr<PeerModel>> Make(
      const TargetContext& context, const std::string& name,
      const std::function<void(ScratchModel&)>& build);

  const engine::Model& model() const { return *model_; }
  struct Export {
    std::string style;  // "broadcast" or "tiled"
    std::unique_ptr<OrtSession> session;
  };
  std::vector<Export>& exports() { return exports_; }

 private:
  std::unique_ptr<const engine::Model> model_;
  std::vector<Export> exports_;
};

// A made-up request of `ads` ads in the form that each of the programs wants.  `masked`: so many
// leading elements of each int32 input are 0 (the others 1).
class PeerRequest {
 public:
  PeerRequest(PeerModel& peer, int64_t ads, int64_t masked = 0);
  PeerRequest(const PeerRequest&) = delete;
  PeerRequest& operator=(const PeerRequest&) = delete;

  absl::Span<const engine::NamedTensor> inputs() const { return request_.inputs(); }

  // Runs every program once and compares: INTERNAL unless ONNX Runtime's outputs are within 1e-5 of
  // ours.
  absl::Status Check();
  // Ours first, then each export.  Valid as long as this object.
  std::vector<Contender> Contenders();

 private:
  absl::Status Compare(const std::string& style);

  PeerModel& peer_;
  MadeUpRequest request_;
  engine::Workspace workspace_;
  engine::RunResult result_;
  std::deque<std::vector<char>> tiled_;
  std::deque<std::vector<float>> outputs_;
  std::vector<engine::NamedTensor> peer_outputs_;
  absl::Status bound_;
};

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_PEER_MODEL_H_
