// SPDX-License-Identifier: Apache-2.0
#include "tools/compare/score_set.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "tools/cli/print.h"
#include "tools/load/recording_arrays.h"
#include "tools/load/recordings.h"
#include "tools/model/npz_inputs.h"

namespace ulfd::tools {

void ScoreFlags::AddTo(FlagSet& flags) {
  flags.Add("requests",
            "npz files as `ulf score` takes them, files of the daemon's recorder, and folders of "
            "either, separated by commas.",
            &requests);
  flags.Add("labels", "Array of the npz files with a 0 or 1 per ad: the AUC is printed, too.",
            &labels);
  flags.Add("score",
            "The output that ads are ranked by; by default the first that has a row per ad.",
            &score);
  flags.Add("column", "Its column; negative ones count from the end.", &column);
  flags.Add(
      "top_k",
      "How many of the best ads are compared, of requests that were not recorded with a top_k.",
      &top_k, 1);
}

namespace {

absl::Status CheckFinite(const engine::NpzArrays& inputs, const engine::ModelInfo& info) {
  for (const engine::InputInfo& input : info.inputs) {
    const auto array = inputs.find(input.name);
    if (array == inputs.end() || input.dtype != engine::DType::kFloat32) continue;
    const float* values = reinterpret_cast<const float*>(array->second.bytes.data());
    const size_t count = array->second.bytes.size() / sizeof(float);
    for (size_t i = 0; i < count; ++i) {
      if (std::isfinite(values[i])) continue;
      return InvalidArgument("input \"", input.name, "\": element ", i, " is ", values[i],
                             ", want finite numbers");
    }
  }
  return absl::OkStatus();
}

class Reader {
 public:
  Reader(const std::string& labels, const engine::ModelInfo& info) : labels_(labels), info_(info) {}

  absl::Status Read(const std::string& file) {
    if (!absl::EndsWith(file, ".ulfrec")) {
      ASSIGN_OR_RETURN(engine::NpzArrays arrays, engine::ReadNpz(file));
      SavedRequest request{.source = file};
      RETURN_IF_ERROR(Annotate(TakeLabels(arrays, request.labels), file));
      return Add(std::move(request), std::move(arrays));
    }
    int64_t call = 0;
    recording::Damage damage;
    RETURN_IF_ERROR(ForEachRecording(
        {file},
        [&](recording::Recording& record) -> absl::Status {
          const std::string source = absl::StrCat(file, ", call ", ++call);
          ASSIGN_OR_RETURN(engine::NpzArrays arrays, Annotate(InputsOfRecording(record), source));
          return Add({.source = source, .top_k = record.indices_size()}, std::move(arrays));
        },
        &damage));
    const std::string passed_over = DescribeDamage(damage);
    if (!passed_over.empty()) Print(stderr, absl::StrCat(file, ": ", passed_over, "\n"));
    return absl::OkStatus();
  }
  std::vector<SavedRequest> requests() && { return std::move(requests_); }

 private:
  absl::Status TakeLabels(engine::NpzArrays& arrays, std::vector<float>& labels) const {
    if (labels_.empty()) return absl::OkStatus();
    const auto found = arrays.find(labels_);
    if (found == arrays.end()) {
      return NotFound("no array \"", labels_, "\" (--labels)");
    }
    ASSIGN_OR_RETURN(const engine::NpyArray array,
                     ConvertInput(labels_, std::move(found->second), engine::DType::kFloat32));
    arrays.erase(found);
    const float* values = reinterpret_cast<const float*>(array.bytes.data());
    labels.assign(values, values + array.bytes.size() / sizeof(float));
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == 0 || labels[i] == 1) continue;
      return InvalidArgument("array \"", labels_, "\": element ", i, " is ", labels[i],
                             ", want 0 or 1");
    }
    return absl::OkStatus();
  }
  absl::Status Add(SavedRequest request, engine::NpzArrays arrays) {
    ASSIGN_OR_RETURN(request.inputs,
                     Annotate(ConvertInputs(std::move(arrays), info_), request.source));
    RETURN_IF_ERROR(Annotate(CheckFinite(request.inputs, info_), request.source));
    requests_.push_back(std::move(request));
    return absl::OkStatus();
  }

  const std::string& labels_;
  const engine::ModelInfo& info_;
  std::vector<SavedRequest> requests_;
};

// Reads npz files, files of the daemon's recorder, and folders of either, in the order of their
// names.  `labels`: the array of npz files that holds a label per ad; empty: there is none.
// INVALID_ARGUMENT for inputs that the model does not have or that hold a NaN or an infinity, and
// for fewer than two requests; NOT_FOUND where an npz file lacks the labels.
absl::StatusOr<std::vector<SavedRequest>> ReadRequests(const std::vector<std::string>& paths,
                                                       const std::string& labels,
                                                       const engine::ModelInfo& info) {
  Reader reader(labels, info);
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesIn(path, {".npz", ".ulfrec"}));
    for (const std::string& file : files) RETURN_IF_ERROR(reader.Read(file));
  }
  std::vector<SavedRequest> requests = std::move(reader).requests();
  if (requests.size() < 2) {
    return InvalidArgument("--requests: ", requests.size(),
                           requests.size() == 1 ? " request" : " requests",
                           ", want at least 2: a single one says nothing of others");
  }
  return requests;
}

std::vector<std::string> OutputNames(const engine::Model& model) {
  std::vector<std::string> names;
  for (const engine::OutputInfo& output : model.info().outputs) names.push_back(output.name);
  return names;
}

std::string QuotedNames(const std::vector<std::string>& names) {
  return absl::StrCat("\"", absl::StrJoin(names, "\", \""), "\"");
}

// The first output that has a row per ad, or the first: a model of users alone has none.
size_t FirstOfAds(const engine::Model& model) {
  const std::vector<engine::OutputInfo>& outputs = model.info().outputs;
  const auto first = absl::c_find_if(outputs, [](const engine::OutputInfo& output) {
    return output.level != engine::Level::kUser;
  });
  return first == outputs.end() ? 0 : static_cast<size_t>(first - outputs.begin());
}

}  // namespace

absl::Status ScoreSet::Init(const engine::Model& wanted) {
  outputs_ = OutputNames(wanted);
  const auto named = std::find(outputs_.begin(), outputs_.end(), flags_.score);
  if (!flags_.score.empty() && named == outputs_.end()) {
    return NotFound("--score: no output \"", flags_.score, "\"; there are ", QuotedNames(outputs_));
  }
  score_ = flags_.score.empty() ? FirstOfAds(wanted) : named - outputs_.begin();
  ASSIGN_OR_RETURN(requests_, ReadRequests(flags_.requests, flags_.labels, wanted.info()));
  ASSIGN_OR_RETURN(wanted_, Score(wanted));
  for (size_t r = 0; r < requests_.size(); ++r) {
    const std::vector<float>& labels = requests_[r].labels;
    if (!labels.empty() && labels.size() != wanted_[r].ranking.size()) {
      return InvalidArgument(requests_[r].source, ": ", labels.size(), " labels for ",
                             wanted_[r].ranking.size(), " ads");
    }
    labels_.insert(labels_.end(), labels.begin(), labels.end());
  }
  return absl::OkStatus();
}

absl::StatusOr<Differences> ScoreSet::Measure(const engine::Model& found) {
  if (const std::vector<std::string> outputs = OutputNames(found); outputs != outputs_) {
    return InvalidArgument("the outputs are ", QuotedNames(outputs), ", want ",
                           QuotedNames(outputs_));
  }
  ASSIGN_OR_RETURN(const std::vector<RequestScores> scores, Score(found));
  for (size_t r = 0; r < scores.size(); ++r) {
    if (scores[r].values.size() == wanted_[r].values.size() &&
        scores[r].ranking.size() == wanted_[r].ranking.size()) {
      continue;
    }
    return InvalidArgument(requests_[r].source, ": ", scores[r].ranking.size(), " ads with ",
                           scores[r].values.size(), " values, want ", wanted_[r].ranking.size(),
                           " with ", wanted_[r].values.size());
  }
  return Compare(wanted_, scores, flags_.top_k, labels_);
}

std::string ScoreSet::Size() const {
  size_t ads = 0;
  for (const RequestScores& request : wanted_) ads += request.ranking.size();
  return absl::StrCat(requests_.size(), " requests, ", ads, " ads");
}

TextTable ScoreSet::Table(const std::string& title) {
  return TextTable({title, "largest error>", "mean error>", "rank correlation>",
                    "least top-k overlap>", "AUC>", "AUC moves by>"});
}

void ScoreSet::AddRow(const std::string& what, const Differences& d, TextTable& table) {
  table.AddRow({what, absl::StrFormat("%.2g", d.max), absl::StrFormat("%.2g", d.mean),
                absl::StrFormat("%.5f", d.rank), absl::StrFormat("%.2f", d.top_k),
                d.auc.has_value() ? absl::StrFormat("%.5f", *d.auc) : "",
                d.auc.has_value() ? absl::StrFormat("%+.5f", *d.auc - *d.wanted_auc) : ""});
}

absl::StatusOr<std::vector<RequestScores>> ScoreSet::Score(const engine::Model& model) {
  std::vector<RequestScores> all;
  engine::Workspace workspace;
  engine::RunResult result;
  for (const SavedRequest& request : requests_) {
    ASSIGN_OR_RETURN(engine::NpzArrays inputs,
                     Annotate(ConvertInputs(request.inputs, model.info()), request.source));
    const auto views = InputViews(model.info(), inputs);
    absl::Status run = model.Run(views, {}, workspace, result);
    // As the daemon scores every further request of these shapes.
    if (run.ok() && !model.MakePlans({}, INT64_MAX).empty()) {
      run = model.Run(views, {}, workspace, result);
    }
    RETURN_IF_ERROR(Annotate(run, request.source));
    ASSIGN_OR_RETURN(RequestScores scores,
                     Annotate(ScoresOf(model.info(), result), request.source));
    scores.top_k = request.top_k;
    all.push_back(std::move(scores));
  }
  return all;
}

absl::StatusOr<RequestScores> ScoreSet::ScoresOf(const engine::ModelInfo& info,
                                                 const engine::RunResult& result) const {
  RequestScores scores;
  for (size_t o = 0; o < result.outputs.size(); ++o) {
    const engine::Tensor& tensor = result.outputs[o];
    if (tensor.dtype != engine::DType::kFloat32) continue;
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      if (!std::isfinite(tensor.f32()[i])) {
        return InvalidArgument("output \"", info.outputs[o].name, "\": element ", i, " is ",
                               tensor.f32()[i], ", want finite scores");
      }
      scores.values.push_back(tensor.f32()[i]);
    }
  }
  const engine::Tensor& score = result.outputs[score_];
  const int64_t rows = score.rank() == 0 ? 0 : score.dims[0];
  const int64_t columns = rows == 0 ? 0 : score.elements() / rows;
  const int64_t column = flags_.column < 0 ? columns + flags_.column : flags_.column;
  if (score.dtype != engine::DType::kFloat32 || column < 0 || column >= columns) {
    return InvalidArgument("output \"", info.outputs[score_].name, "\", ",
                           engine::Name(score.dtype), " ", engine::ToString(score.dims),
                           ": want a float32 column ", flags_.column,
                           " to rank ads by (--score, --column)");
  }
  for (int64_t r = 0; r < rows; ++r) scores.ranking.push_back(score.f32()[r * columns + column]);
  return scores;
}

}  // namespace ulfd::tools
