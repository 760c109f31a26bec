// Targets that compare with ONNX Runtime.
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tests/bench/bench_models.h"
#include "tests/bench/peer_model.h"
#include "tests/bench/targets.h"

namespace ulfd::bench {
namespace {

struct PeerTarget {
  std::string row, work;
  double target = 0;  // Times as fast as ONNX Runtime's better export.
  int64_t ads = 0;
  int64_t masked = 0;
};

std::string Milliseconds(const Spread& seconds) {
  return absl::StrFormat("%.4g ms", seconds.median * 1e3);
}

// Compares outputs, then measures.
absl::Status MeasurePeer(TargetContext& context, PeerModel& peer, const PeerTarget& target) {
  PeerRequest request(peer, target.ads, target.masked);
  if (absl::Status status = request.Check(); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(target.row, ": ", status.message()));
  }
  const std::vector<Contender> contenders = request.Contenders();
  ASSIGN_OR_RETURN(const Turns turns, RunInTurns(contenders, context.turns));
  TargetLine line{.row = target.row,
                  .work = target.work,
                  .target = absl::StrFormat("at least %.3g x", target.target)};
  std::vector<Spread> seconds;
  size_t better = 0;  // Among the exports, those from 1 on.
  for (size_t c = 0; c < contenders.size(); ++c) {
    seconds.push_back(SpreadOf(turns.seconds[c]));
    absl::StrAppend(&line.detail, c == 0 ? "" : ", ", contenders[c].name, " ",
                    Milliseconds(seconds[c]));
    line.numbers[contenders[c].name + "_ms"] = seconds[c].median * 1e3;
    if (c > 0 && (better == 0 || seconds[c].median < seconds[better].median)) better = c;
  }
  const Spread peak = SpreadOf(turns.peak_gflops);
  absl::StrAppendFormat(&line.detail, "; peak %.0f GFLOP/s", peak.median);
  line.numbers["peak_gflops"] = peak.median;
  if (better == 0) {
    line.verdict = Verdict::kSkipped;
    line.reached = context.ort_missing;
  } else {
    const Spread ratio = SpreadOf(Ratios(turns.seconds[better], turns.seconds[0]));
    line.reached = Format(ratio, " x");
    line.verdict = ratio.median >= target.target ? Verdict::kReached : Verdict::kMissed;
    line.numbers["ratio"] = ratio.median;
    line.numbers["ratio_low"] = ratio.low;
    line.numbers["ratio_high"] = ratio.high;
  }
  RETURN_IF_ERROR(AddProfile(context, peer.model(), request.inputs(), target.ads, line));
  context.lines.push_back(std::move(line));
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureDin(TargetContext& context, const std::string& row, int64_t ads, int64_t masked,
                        double target) {
  ASSIGN_OR_RETURN(const auto peer, PeerModel::Make(context, row, BuildDin));
  const std::string work =
      absl::StrCat("DIN, ", ads, ads == 1 ? " ad" : " ads", ", ",
                   masked == 0 ? "all history valid" : "half of the history masked");
  return MeasurePeer(context, *peer, {row, work, target, ads, masked});
}

absl::Status MeasureMlp(TargetContext& context, const std::string& row, int64_t rows) {
  ASSIGN_OR_RETURN(const auto peer, PeerModel::Make(context, row, [](ScratchModel& m) {
                     BuildMlp(m, {306, 200, 80, 2}, kActivation);
                   }));
  const std::string work =
      absl::StrCat("MLP 306-200-80-2, no user part, ", rows, rows == 1 ? " row" : " rows");
  return MeasurePeer(context, *peer, {row, work, 1.1, rows});
}

absl::Status MeasureUserColumns(TargetContext& context, const std::string& row) {
  ASSIGN_OR_RETURN(const auto peer, PeerModel::Make(context, row, [](ScratchModel& m) {
                     BuildUserMlp(m, 732, 306, {200, 80, 2}, kActivation);
                   }));
  return MeasurePeer(
      context, *peer,
      {row, "first FC with 732 user and 306 ad columns, 200-80-2, 200 ads", 2.5, 200});
}

}  // namespace ulfd::bench
