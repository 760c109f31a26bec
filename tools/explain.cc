// ulf explain: shows how a model is executed, and why so.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "engine/runtime/model.h"
#include "engine/status_macros.h"
#include "tools/commands.h"
#include "tools/explain_text.h"
#include "tools/explanation.h"

namespace ulfd::tools {
namespace {

constexpr char kDescription[] =
    "Loads the model in MODELDIR (a version directory, such as models/din/1) as the daemon would\n"
    "and prints, for every layer of the file, its level, shapes and cost, what the optimiser did\n"
    "to it and what that saved; then the steps that are executed, in order, with the cut between\n"
    "what is computed once per request (the user part) and once per ad (the ad part).";
constexpr int64_t kMaxAds = 1000000;

}  // namespace

absl::Status RunExplain(Args args) {
  int64_t ads = 200;
  bool help = false;
  FlagSet flags("explain MODELDIR [--ads=N]", kDescription);
  flags.Add("ads", "Number of ads for which figures are given.", &ads);
  std::vector<std::string> positional;
  RETURN_IF_ERROR(flags.Parse(args, 1, 1, &positional, &help));
  if (help) return absl::OkStatus();
  if (ads < 1 || ads > kMaxAds) {
    return UsageError(absl::StrCat("--ads: ", ads, ", want 1 to ", kMaxAds));
  }
  ASSIGN_OR_RETURN(const auto model, engine::Model::Load({.directory = positional[0]}));
  const Explanation all = Explain(*model, ads);
  std::fputs(ExplainText(all).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace ulfd::tools
