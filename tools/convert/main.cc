// ulf-convert: the program behind `ulf convert`.
//
// Exit codes: 0 done; 1 what was asked for failed; 2 the command line is wrong.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "engine/tensor/onednn.h"
#include "tools/command.h"
#include "tools/convert/convert.h"

namespace ulfd::convert {
namespace {

using tools::UsageError;

constexpr char kSynopsis[] = "convert caffe NET.prototxt [WEIGHTS.caffemodel] OUT";
constexpr char kDescription[] =
    "Turns a Caffe model into the version directory OUT (such as models/rank/1), which must not\n"
    "exist or be empty: graph_ulf.txt, weights.pb, model.textproto, a report of what became of\n"
    "every layer, and _SUCCESS last.  Layers that cannot be converted are all listed, and then\n"
    "nothing is written.  Inputs have a row per ad unless a flag says otherwise.";

absl::Status Run(tools::Args args) {
  ConvertOptions options;
  std::vector<std::string> positional;
  bool help = false;
  tools::FlagSet flags(kSynopsis, kDescription);
  flags.Add("user_inputs", "Inputs, separated by commas, whose one row belongs to the user.",
            &options.user_inputs);
  flags.Add("ad_inputs", "Inputs, separated by commas, that have a row per ad.",
            &options.ad_inputs);
  RETURN_IF_ERROR(flags.Parse(args, 3, 4, &positional, &help));
  if (help) return absl::OkStatus();
  engine::UseOneThread();
  absl::StatusOr<Report> report;
  if (positional[0] == "caffe") {
    report = ConvertCaffe(positional[1], positional.size() == 4 ? positional[2] : "",
                          positional.back(), options);
  } else {
    return UsageError(absl::StrCat("unknown format \"", positional[0], "\", want caffe"));
  }
  RETURN_IF_ERROR(report.status());
  std::fputs(report->ToString().c_str(), stdout);
  std::printf("\nwritten: %s\n", positional.back().c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const absl::Status status = Run(args);
  if (status.ok()) return std::fflush(stdout) == 0 ? 0 : 1;
  std::fprintf(stderr, "ulf convert: %s\n", std::string(status.message()).c_str());
  if (!tools::IsUsageError(status)) return 1;
  std::fputs("`ulf convert --help` explains the command\n", stderr);
  return 2;
}

}  // namespace
}  // namespace ulfd::convert

int main(int argc, char** argv) { return ulfd::convert::Main(argc, argv); }
