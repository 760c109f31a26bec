// Random graphs and requests: as optimised = as optimised exactly = as written, whole and in tiles.
// The input's bytes are the choices that the graph is made of.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "tests/bench/random_model.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace ulfd::engine;
using ulfd::fuzz::Fail;

constexpr double kTolerance = 1e-5;  // Of the largest magnitude of an output, at least of 1.

// Two bytes make a choice; where they end, the rest is made up.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint32_t Next() {
    if (at_ + 2 > size_) return static_cast<uint32_t>(rest_());
    at_ += 2;
    return data_[at_ - 2] | static_cast<uint32_t>(data_[at_ - 1]) << 8;
  }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
  std::mt19937 rest_{1};
};

using Outputs = std::vector<std::vector<float>>;

Outputs Run(const Model& model, const ulfd::bench::MadeUpRequest& request,
            const RunOptions& options) {
  Workspace workspace;
  RunResult result;
  const absl::Status status = model.Run(request.inputs(), options, workspace, result);
  if (!status.ok()) Fail(status.ToString());
  Outputs outputs;
  for (const Tensor& output : result.outputs) {
    outputs.emplace_back(output.f32(), output.f32() + output.elements());
  }
  return outputs;
}

void Compare(const Outputs& found, const Outputs& wanted, absl::string_view what) {
  if (found.size() != wanted.size()) Fail(absl::StrCat(what, ": other outputs"));
  for (size_t o = 0; o < wanted.size(); ++o) {
    if (found[o].size() != wanted[o].size()) Fail(absl::StrCat(what, ": another shape"));
    double difference = 0, magnitude = 1;
    bool finite = true;
    for (size_t i = 0; i < wanted[o].size(); ++i) {
      const double f = found[o][i], w = wanted[o][i];
      finite = finite && std::isfinite(w);
      difference = std::isfinite(f) ? std::max(difference, std::abs(f - w)) : INFINITY;
      magnitude = std::max(magnitude, std::abs(w));
    }
    if (finite && !(difference <= kTolerance * magnitude)) {
      Fail(absl::StrCat(what, ": output ", o, " differs by ", difference, " of ", magnitude));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  UseOneThread();
  Choices choices(data, size);
  const int64_t ads = 1 + choices.Next() % 40;
  const int64_t tile = 1 + choices.Next() % 8;
  ulfd::bench::ScratchModel scratch;
  ulfd::bench::BuildRandomModel(scratch, [&choices] { return choices.Next(); });
  const std::string directory = ulfd::fuzz::EmptyScratch("random/1");
  const auto optimised = scratch.Load(directory);
  const auto exact = Model::Load({.directory = directory, .passes = {.exact = true}});
  const auto written = Model::Load({.directory = directory, .optimise = false});
  for (const auto* model : {&optimised, &exact, &written}) {
    if (!model->ok()) Fail(model->status().ToString());
  }
  const ulfd::bench::MadeUpRequest request((*optimised)->info(), ads, 1, 1);
  const Outputs wanted = Run(**written, request, {.reference = true});
  Compare(Run(**optimised, request, {}), wanted, "optimised");
  Compare(Run(**optimised, request, {.tile_rows = tile}), wanted, "optimised, in tiles");
  Compare(Run(**optimised, request, {.reference = true}), wanted, "reference");
  Compare(Run(**exact, request, {}), wanted, "exact");
  Compare(Run(**exact, request, {.tile_rows = tile}), wanted, "exact, in tiles");
  Compare(Run(**written, request, {.tile_rows = tile}), wanted, "written, in tiles");
  return 0;
}
