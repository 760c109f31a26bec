// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/onnx/rows/example_rows.h"

#include <chrono>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tools/convert/onnx/model/functions.h"
#include "tools/convert/onnx/rows/rows_follower.h"

namespace ulfd::convert {
namespace {

constexpr auto kTime = std::chrono::seconds(20);

}  // namespace

absl::Status FollowRows(onnx::GraphProto& graph, int64_t opset, int64_t rows,
                        const std::vector<std::string>& inputs, bool certain) {
  constexpr int kTries = 64;
  const auto deadline = std::chrono::steady_clock::now() + kTime;
  std::vector<bool> choices;
  size_t range = 0;
  for (int i = 0; i < kTries && std::chrono::steady_clock::now() < deadline; ++i) {
    RowsFollower follower(graph, opset, rows, inputs, certain, choices, range, deadline);
    follower.Run();
    if (!follower.branches().empty()) {
      RETURN_IF_ERROR(TakeBranches(graph, follower.branches()));
      continue;
    }
    if (follower.misses()) {
      ++range;
      continue;
    }
    if (follower.Fits()) return absl::OkStatus();
    choices = follower.choices();
    while (!choices.empty() && choices.back()) choices.pop_back();
    if (choices.empty()) break;
    choices.back() = true;
  }
  return Unimplemented(
      rows > 1 ? "an output has the example's rows whatever the request has: it is constant, or "
                 "computed across rows; "
               : "the example's row cannot be told from other sizes of 1, or its score depends on "
                 "other rows; ",
      "export the model with dynamic_axes",
      rows > 1 ? "" : ", or with an example of 2 rows or more");
}

}  // namespace ulfd::convert
