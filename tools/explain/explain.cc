// ulf explain: shows how a model is executed, and why so.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <utility>

#include "base/status_macros.h"
#include "base/text_file.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "tools/cli/commands.h"
#include "tools/cli/print.h"
#include "tools/explain/explanation.h"
#include "tools/explain/profile.h"
#include "tools/model/made_up_inputs.h"
#include "tools/model/model_flags.h"
#include "tools/model/npz_inputs.h"

namespace ulfd::tools {
namespace {

constexpr char kDescription[] =
    R"(Loads the model in MODELDIR (a version directory, such as models/din/1) as the daemon would
and prints, for every layer of the file, its level, shapes and cost, what the optimiser did
to it and what that saved; then the steps that are executed, in order, with the cut between
what is computed once per request (the user part) and for every ad: from the ad alone (the
ad part), or from ad and user (the joint part).)";
constexpr int64_t kMaxAds = 1000000;

struct Options {
  int64_t ads = 200, user_ids = 20;
  double seconds = 1;
  bool profile = false, reference = false;
  std::string inputs, html, json;
};

absl::Status Check(const Options& options, const FlagSet& flags) {
  RETURN_IF_ERROR(flags.Only(options.profile, "--profile", {"reference", "seconds", "user_ids"}));
  return flags.Only(options.inputs.empty(), "made-up requests, not --inputs", {"ads", "user_ids"});
}

// What becomes of the request in a file.
absl::StatusOr<RequestShapes> ShapesOf(const engine::Model& model, const std::string& path) {
  ASSIGN_OR_RETURN(engine::NpzArrays arrays, ReadInputs(path, model.info()));
  engine::Workspace workspace;
  engine::RunResult result;
  RETURN_IF_ERROR(model.Run(InputViews(model.info(), arrays), {}, workspace, result));
  if (!result.stats.unproved) return RequestShapes{};
  const std::vector<engine::ShapePlanInfo> plans = model.MakePlans({}, INT64_MAX);
  if (plans.empty()) {
    return RequestShapes{.as_written = "no plan fits its shapes, and none can be made for them"};
  }
  RequestShapes shapes{.inputs = plans[0].inputs};
  if (plans[0].state == engine::ShapePlanInfo::State::kRefused) {
    shapes.as_written = plans[0].why_refused;
  }
  return shapes;
}

// Runs the model where that was asked for; the explanation borrows from the model.
absl::StatusOr<Explanation> ExplainWith(const engine::Model& model, const Options& options,
                                        const RequestShapes& shapes) {
  if (options.inputs.empty() && !options.profile) {
    return Explain(model, options.ads, nullptr, shapes);
  }
  engine::NpzArrays arrays;
  int64_t ads = options.ads;
  const bool made_up = options.inputs.empty();
  if (made_up) {
    ASSIGN_OR_RETURN(arrays, MakeUpInputs(model, ads, options.user_ids));
  } else {
    ASSIGN_OR_RETURN(arrays, ReadInputs(options.inputs, model.info()));
    ads = AdsOf(model.info(), arrays);
  }
  const std::vector<engine::NamedTensor> inputs = InputViews(model.info(), arrays);
  engine::Workspace workspace;
  engine::RunResult observed;
  RETURN_IF_ERROR(model.Run(inputs, {.keep_all = true, .made_up = made_up}, workspace, observed));
  // Magnitudes of made-up inputs say less than the weights.
  Explanation all = Explain(model, ads, made_up ? nullptr : &observed, shapes);
  if (!options.profile) return all;
  for (const bool reference : {false, true}) {
    if (reference && (!options.reference || !all.optimised.has_value())) continue;
    ASSIGN_OR_RETURN(
        Profile profile,
        MeasureProfile(
            model, inputs,
            {.ads = ads, .seconds = options.seconds, .reference = reference, .made_up = made_up}));
    all.profiles.push_back(std::move(profile));
  }
  return all;
}

}  // namespace

absl::Status RunExplain(Args args) {
  Options options;
  FlagSet flags(
      "ulf explain MODELDIR [--ads=N] [--inputs=FILE.npz] [--profile] [--html=FILE] [--json=FILE]",
      kDescription);
  flags.Add("ads", "Number of ads for which figures are given.", &options.ads, 1, kMaxAds);
  flags.Add("inputs",
            "npz file with one array per graph input: what is shown is what a request of these "
            "shapes gets; magnitudes are taken from a run of it, and --profile times it.",
            &options.inputs);
  flags.Add("profile", "Times every step, on --inputs or on a made-up request.", &options.profile);
  flags.Add("reference", "With --profile: also times the graph as written.", &options.reference);
  flags.Add("seconds", "With --profile: how long each plan is timed.", &options.seconds, 0, 3600);
  flags.Add("user_ids", "With --profile: ids per feature of the made-up user.", &options.user_ids,
            0, kMaxAds);
  flags.Add("html", "File to write a picture of the graph and of the steps to.", &options.html);
  flags.Add("json", "File to write everything to, for programs.", &options.json);
  ModelFlags model_flags(flags);
  model_flags.AddTables(flags);
  model_flags.AddBackend(flags);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 1, 1));
  RETURN_IF_ERROR(Check(options, flags));

  engine::UseOneThread();
  ASSIGN_OR_RETURN(auto model, model_flags.LoadModel(positional[0]));
  RequestShapes shapes;
  if (!options.inputs.empty()) {
    ASSIGN_OR_RETURN(shapes, ShapesOf(*model, options.inputs));
  }
  if (!shapes.inputs.empty() && shapes.as_written.empty()) {
    // The plan that such requests get is the one of a model whose shapes are stated.
    model = nullptr;
    ASSIGN_OR_RETURN(model, model_flags.LoadModel(positional[0], shapes.inputs));
  }
  ASSIGN_OR_RETURN(const Explanation all, ExplainWith(*model, options, shapes));
  if (!options.html.empty()) RETURN_IF_ERROR(WriteTextFile(options.html, ExplainHtml(all)));
  if (!options.json.empty()) RETURN_IF_ERROR(WriteTextFile(options.json, ExplainJson(all)));
  Print(stdout, ExplainText(all));
  return absl::OkStatus();
}

}  // namespace ulfd::tools
