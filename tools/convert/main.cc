// ulf-convert: the program behind `ulf convert`, apart from `ulf` so that only who converts needs
// ONNX's libraries.
//
// Exit codes: 0 done; 1 what was asked for failed; 2 the command line is wrong; 3 the system
// failed; 4 there is not enough memory.
// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/errors.h"
#include "base/flags/flag_set.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "engine/directory/load_reason.h"
#include "engine/tensor/onednn.h"
#include "tools/cli/print.h"
#include "tools/convert/convert.h"

namespace ulfd::convert {
namespace {

constexpr char kSynopsis[] =
    "ulf convert caffe NET.prototxt [WEIGHTS.caffemodel] OUT\n"
    "       ulf convert onnx MODEL.onnx OUT";
constexpr char kDescription[] =
    R"(Turns a Caffe or ONNX model into the version directory OUT (such as models/rank/1), which must
not exist or be empty: graph_ulf.txt, weights.pb, model.textproto, embedding tables, a report
of what became of every node, and _SUCCESS last.  Nodes that cannot be converted are all
listed, and then nothing is written.

ONNX: an input whose leading dimension is 1 or named user or users belongs to the user; named
ads, ad, batch, batch_size or N it has a row per ad; numbers and lists of a fixed length, which
have no rows, are the user's.  What was converted is compared with the model on made-up inputs,
and not written if it differs.  Caffe: inputs have a row per ad.)";

// "a=1,b=2".
absl::Status ParseDims(const std::vector<std::string>& pairs,
                       std::map<std::string, int64_t>& dims) {
  for (const std::string& pair : pairs) {
    const std::vector<std::string> parts = absl::StrSplit(pair, '=');
    int64_t value = 0;
    if (parts.size() != 2 || parts[0].empty() || !absl::SimpleAtoi(parts[1], &value) || value < 1) {
      return UsageError("--dims: \"", pair, "\", want NAME=NUMBER");
    }
    if (!dims.emplace(parts[0], value).second) {
      return UsageError("--dims: \"", parts[0], "\" is there twice");
    }
  }
  return absl::OkStatus();
}

absl::Status Run(Args args) {
  ConvertOptions options;
  std::vector<std::string> dims, roots;
  bool no_verify = false;
  FlagSet flags(kSynopsis, kDescription);
  flags.Add("user_inputs", "Inputs, separated by commas, whose one row belongs to the user.",
            &options.user_inputs);
  flags.Add("ad_inputs", "Inputs, separated by commas, that have a row per ad.",
            &options.ad_inputs);
  flags.Add("dims", "Numbers for symbolic dimensions of an ONNX model: NAME=NUMBER,...", &dims);
  flags.Add("schema",
            "CSV that names the columns of an ONNX model's one matrix, in order: the line "
            "column,kind,side,vocabulary,length, then a line each.",
            &options.schema);
  flags.AddRead("roots",
                "Directories, one a line and escaped as in C, in which the model's files must lie "
                "once every symbolic link is followed; the daemon gives them.",
                [&roots](const std::string& lines) {
                  roots = absl::StrSplit(lines, '\n', absl::SkipEmpty());
                  for (std::string& root : roots) {
                    if (!absl::CUnescape(std::string(root), &root)) {
                      return InvalidArgument("want directories, escaped as in C");
                    }
                  }
                  return absl::OkStatus();
                });
  flags.Add("no_verify", "Write the model without comparing it with the ONNX model first.",
            &no_verify);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 3, 4));
  RETURN_IF_ERROR(flags.Only(positional[0] != "caffe", "onnx", {"no_verify"}));
  RETURN_IF_ERROR(ParseDims(dims, options.dims));
  options.verify = !no_verify;
  engine::UseOneThread();
  const LoadScope scope({.roots = std::move(roots)});
  absl::StatusOr<Report> report;
  if (positional[0] == "caffe") {
    report = ConvertCaffe(positional[1], positional.size() == 4 ? positional[2] : "",
                          positional.back(), options);
  } else if (positional[0] == "onnx") {
    if (positional.size() != 3) return UsageError("onnx takes MODEL.onnx and OUT");
    report = ConvertOnnx(positional[1], positional[2], options);
  } else {
    return UsageError("unknown format \"", positional[0], "\", want caffe or onnx");
  }
  RETURN_IF_ERROR(report.status());
  tools::Print(stdout, absl::StrCat(report->ToString(), "\nwritten: ", positional.back(), "\n"));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args == std::vector<std::string>{"--version"}) {
    std::puts("ulf-convert " ULFD_VERSION);
    return 0;
  }
  const absl::Status status = WithinMemory([&args] { return Run(args); });
  if (status.ok() || IsHelpPrinted(status)) return std::fflush(stdout) == 0 ? 0 : 1;
  tools::PrintError("ulf convert", status);
  if (status == AllocationFailure()) return 4;
  // The daemon tries again where the model is not to blame: a full disk, one that cannot be read.
  const bool of_model = engine::IsContentError(status) || absl::IsNotFound(status) ||
                        absl::IsResourceExhausted(status);
  if (!of_model) return 3;
  if (!IsUsageError(status)) return 1;
  std::fputs("`ulf convert --help` explains the command\n", stderr);
  return 2;
}

}  // namespace
}  // namespace ulfd::convert

int main(int argc, char** argv) {
  // A file at its limit is an error of one write.
  std::signal(SIGXFSZ, SIG_IGN);
  return ulfd::convert::Main(argc, argv);
}
