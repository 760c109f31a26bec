// ulf quantise: what a low precision does to a model's scores, and the manifest that asks for it.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text_file.h"
#include "engine/directory/model_directory.h"
#include "engine/runtime/score_tolerance.h"
#include "engine/tensor/onednn.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "tools/cli/commands.h"
#include "tools/cli/print.h"
#include "tools/cli/text_table.h"
#include "tools/compare/differences.h"
#include "tools/compare/score_set.h"
#include "tools/model/model_flags.h"

namespace ulfd::tools {
namespace {

namespace pb = ulfd::model::v1;
using engine::Precision;
using engine::PrecisionChoice;

constexpr char kDescription[] =
    R"(Scores recorded or saved requests in fp32 and in a low precision, and prints how far the
scores move: for each layer with weights alone (layers that are computed as one step
together), and for all of them.  Layers stay in fp32, the worst first, until no score moves by
more than --max_error.  --output gets the model's manifest with `precision`,
`layer_precision` and a `golden_tolerance` of twice the largest error.  Nothing else is
changed.)";

struct Options {
  ScoreFlags scores;
  std::string output;
  double max_error = 0.01;
  Precision precision = Precision::kBf16;
};

// The field of the manifest.
pb::Precision ProtoOf(Precision precision) {
  return precision == Precision::kInt8 ? pb::PRECISION_INT8 : pb::PRECISION_BF16;
}

// The text of a manifest without the lines of these fields.
std::string WithoutPrecision(absl::string_view text) {
  std::string kept;
  bool within = false;  // A layer_precision of several lines.
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view field = absl::StripAsciiWhitespace(line);
    within |= absl::StartsWith(field, "layer_precision");
    if (!within && !absl::StartsWith(field, "precision") &&
        !absl::StartsWith(field, "golden_tolerance")) {
      absl::StrAppend(&kept, line, "\n");
    }
    within &= !absl::EndsWith(field, "}");
  }
  return std::string(absl::StripTrailingAsciiWhitespace(kept));
}

// `manifest`, which differs from that of the directory in what it says of precision alone, as text.
// With the comments that were there, unless lines hold more than a field.
absl::StatusOr<std::string> TextOf(const pb::ModelManifest& manifest,
                                   const std::string& directory) {
  pb::ModelManifest precision, parsed;
  precision.set_golden_tolerance(manifest.golden_tolerance());
  precision.set_precision(manifest.precision());
  *precision.mutable_layer_precision() = manifest.layer_precision();
  std::string whole, added;
  if (!google::protobuf::TextFormat::PrintToString(manifest, &whole) ||
      !google::protobuf::TextFormat::PrintToString(precision, &added)) {
    return Internal("the manifest cannot be printed");
  }
  const auto before = ReadTextFile(absl::StrCat(directory, "/", engine::kManifestFile));
  if (!before.ok()) return whole;
  const std::string text = absl::StrCat(WithoutPrecision(*before), "\n", added);
  const bool same = google::protobuf::TextFormat::ParseFromString(text, &parsed) &&
                    google::protobuf::util::MessageDifferencer::Equals(parsed, manifest);
  return same ? text : whole;
}

// Layers that are rounded together or not at all, and what becomes of the scores then.
struct Group {
  std::vector<std::string> layers;
  Differences alone;
  bool in_fp32 = false;
};

class Quantiser {
 public:
  Quantiser(ModelFlags& model_flags, std::string directory, const Options& options)
      : model_flags_(model_flags),
        directory_(std::move(directory)),
        options_(options),
        requests_(options.scores) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(const auto model, Load({}));
    RETURN_IF_ERROR(requests_.Init(*model));
    ASSIGN_OR_RETURN(const auto rounded, Load(Choice()));
    FindGroups(*rounded);
    if (groups_.empty() && !unnamed_) {
      return FailedPrecondition("the model has no layer that could be in ",
                                engine::Name(options_.precision));
    }
    for (Group& group : groups_) {
      ASSIGN_OR_RETURN(group.alone, Measure(Only(group.layers)));
    }
    ASSIGN_OR_RETURN(Differences all, Measure(Choice()));
    ScoreSet::AddRow("all", all, table_);
    while (all.max > options_.max_error && Left() > 0) {
      Worst()->in_fp32 = true;
      if (Left() > 0 || unnamed_) {
        ASSIGN_OR_RETURN(all, Measure(Choice()));
      }
    }
    for (const Group& group : groups_) {
      ScoreSet::AddRow(
          absl::StrCat(group.in_fp32 ? "(fp32) " : "", absl::StrJoin(group.layers, ", ")),
          group.alone, table_);
    }
    if (Left() < groups_.size() && (Left() > 0 || unnamed_))
      ScoreSet::AddRow("all but those in (fp32)", all, table_);
    Print(stdout, absl::StrCat(requests_.Size(), "\n", table_.ToString()));
    if (all.max > options_.max_error) {
      return FailedPrecondition(
          "every layer moves scores by more than --max_error of ", options_.max_error,
          unnamed_ ? "; those without a name cannot be chosen one by one" : "");
    }
    return WriteManifest(all);
  }

 private:
  absl::StatusOr<std::unique_ptr<const engine::Model>> Load(const PrecisionChoice& choice) {
    return model_flags_.LoadModel(directory_, {}, choice);
  }

  // Layers that some step of the rounded model stands for together, by name.
  void FindGroups(const engine::Model& model) {
    const engine::PlanInfo written = model.WrittenPlan();
    std::map<int, std::string> names;
    for (const engine::PlanStep& step : written.steps) {
      if (step.precision.empty()) continue;
      const std::string& name = model.info().layers[step.layers[0]].name;
      unnamed_ |= name.empty();
      if (!name.empty()) names[step.layers[0]] = name;
    }
    // Shapes that only requests show have plans later: any layer may be rounded then.
    const std::optional<engine::PlanInfo> optimised = model.OptimisedPlan();
    const engine::PlanInfo& plan = optimised.has_value() ? *optimised : written;
    for (const engine::PlanStep& step : plan.steps) {
      if (step.precision.empty() || (optimised.has_value() && step.precision == "fp32")) continue;
      Group group;
      for (const int layer : step.layers) {
        if (names.contains(layer)) group.layers.push_back(names[layer]);
      }
      // With those that share a layer with it.
      for (size_t g = 0; g < groups_.size();) {
        if (!Share(groups_[g].layers, group.layers)) {
          ++g;
          continue;
        }
        group.layers.insert(group.layers.begin(), groups_[g].layers.begin(),
                            groups_[g].layers.end());
        groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(g));
      }
      std::vector<std::string> once;
      for (const std::string& layer : group.layers) {
        if (std::find(once.begin(), once.end(), layer) == once.end()) once.push_back(layer);
      }
      group.layers = std::move(once);
      if (!group.layers.empty()) groups_.push_back(std::move(group));
    }
  }
  static bool Share(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    return std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) != a.end();
  }

  PrecisionChoice Only(const std::vector<std::string>& layers) const {
    PrecisionChoice choice;
    for (const std::string& layer : layers) choice.layers.emplace_back(layer, options_.precision);
    return choice;
  }
  PrecisionChoice Choice() const {
    PrecisionChoice choice{.model = options_.precision};
    for (const Group& group : groups_) {
      if (!group.in_fp32) continue;
      for (const std::string& layer : group.layers) {
        choice.layers.emplace_back(layer, Precision::kFp32);
      }
    }
    return choice;
  }
  absl::StatusOr<Differences> Measure(const PrecisionChoice& choice) {
    ASSIGN_OR_RETURN(const auto model, Load(choice));
    return requests_.Measure(*model);
  }

  // Of those that are rounded.
  Group* Worst() {
    Group* worst = nullptr;
    for (Group& group : groups_) {
      if (!group.in_fp32 && (worst == nullptr || group.alone.max > worst->alone.max)) {
        worst = &group;
      }
    }
    return worst;
  }
  size_t Left() const {
    return std::count_if(groups_.begin(), groups_.end(), [](const Group& g) { return !g.in_fp32; });
  }

  absl::Status WriteManifest(const Differences& all) const {
    ASSIGN_OR_RETURN(const engine::ModelDirectory directory,
                     engine::OpenModelDirectory(VersionDirectory(directory_)));
    pb::ModelManifest manifest = directory.manifest;
    ASSIGN_OR_RETURN(const double tolerance, engine::ToleranceOf(manifest));
    // Two digits, upwards.
    const double twice = std::max(2 * all.max, 1e-9);
    const double unit = std::pow(10, std::floor(std::log10(twice)) - 1);
    const double wanted = std::max(tolerance, std::ceil(twice / unit) * unit);
    manifest.set_golden_tolerance(static_cast<float>(wanted));
    manifest.set_precision(ProtoOf(options_.precision));
    manifest.clear_layer_precision();
    for (const Group& group : groups_) {
      if (!group.in_fp32) continue;
      if (manifest.layer_precision().empty()) {
        manifest.add_layer_precision()->set_precision(pb::PRECISION_FP32);
      }
      for (const std::string& layer : group.layers) {
        manifest.mutable_layer_precision(0)->add_layers(layer);
      }
    }
    ASSIGN_OR_RETURN(const std::string text, TextOf(manifest, directory.path));
    std::printf("golden_tolerance %.2g\n", wanted);
    return options_.output.empty() ? absl::OkStatus() : WriteTextFile(options_.output, text);
  }

  ModelFlags& model_flags_;
  const std::string directory_;
  const Options& options_;
  ScoreSet requests_;
  std::vector<Group> groups_;
  bool unnamed_ = false;  // Some layers that may be rounded have no name to choose them by.
  TextTable table_ = ScoreSet::Table(absl::StrCat("in ", engine::Name(options_.precision)));
};

}  // namespace

absl::Status RunQuantise(Args args) {
  Options options;
  FlagSet flags("ulf quantise MODELDIR --requests=FILE|FOLDER,... [--output=model.textproto]",
                kDescription);
  options.scores.AddTo(flags);
  std::string precision = "bf16";
  flags.Add("precision", "bf16 or int8.", &precision);
  flags.Add("max_error", "How far any score may move, in parts of max(1, |score|).",
            &options.max_error, 0);
  flags.Add("output", "Where the manifest is written.", &options.output);
  ModelFlags model_flags(flags);
  model_flags.AddTables(flags);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 1, 1));
  if (options.scores.requests.empty()) return UsageError("--requests is needed");
  ASSIGN_OR_RETURN(options.precision, engine::ParsePrecision(precision));
  if (options.precision <= Precision::kAuto) {
    return UsageError("--precision=", precision, ", want bf16 or int8");
  }
  if (!engine::Has(options.precision)) {
    return FailedPrecondition("this machine has no ", engine::InstructionsOf(options.precision),
                              ", or ULFD_ISA leaves it out: there is nothing to measure");
  }
  engine::UseOneThread();
  return Quantiser(model_flags, positional[0], options).Run();
}

}  // namespace ulfd::tools
