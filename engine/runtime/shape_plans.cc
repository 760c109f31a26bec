// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/shape_plans.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/hash/hash.h"
#include "base/errors.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/runtime/load_checks.h"
#include "engine/runtime/score_tolerance.h"
#include "engine/tensor/element.h"

namespace ulfd::engine {

namespace {

using std::chrono::steady_clock;

// From plans made to the next place that goes: at least, and in times of what making one took, so
// that shapes without end take a hundredth of a CPU.
constexpr std::chrono::seconds kPause{5};
constexpr int kPauses = 100;
constexpr int64_t kMostAds = 32;
// Of the requests that a model keeps: whoever may call it chooses how large they are.
constexpr int64_t kMostBytes = int64_t{2} << 20;
// Of one way of computing such a request: small inputs may have large results, and workers compute
// requests beside it.
constexpr int64_t kMostRunBytes = int64_t{64} << 20;
constexpr size_t kMaxRefusalBytes = 1024;

// Whether the dimensions of input i are part of a request's shapes.
bool HasShape(const Executable& model, size_t i) {
  return model.info->inputs[i].used && !model.info->inputs[i].free_length;
}

// The number of ads of a request of which every input has a row per ad or a single one; 0 for any
// other.
int64_t AdsOf(const Executable& model, const Request& request) {
  int64_t ads = 0;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (!HasShape(model, i)) continue;
    const TensorDims& dims = request.inputs[i].dims;
    if (std::find(dims.begin(), dims.end(), 0) != dims.end() || dims.empty()) return 0;
    ads = std::max(ads, dims[0]);
  }
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (!HasShape(model, i)) continue;
    const int64_t rows = request.inputs[i].dims[0];
    if (rows != 1 && rows != ads) return 0;
  }
  return ads;
}

// Ranks and widths in the upper half.  Which inputs have a single row is in the lower one; 0: all
// have, which fits whatever plan there is for the widths.
uint64_t KeyOf(const Executable& model, const Request& request, int64_t ads) {
  size_t widths = 1, rows = 1;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (!HasShape(model, i)) continue;
    const TensorDims& dims = request.inputs[i].dims;
    widths = absl::HashOf(widths, dims.size());
    for (size_t d = 1; d < dims.size(); ++d) widths = absl::HashOf(widths, dims[d]);
    rows = absl::HashOf(rows, dims[0] == 1);
  }
  const uint64_t upper = (widths | 1) << 32;
  return ads == 1 ? upper : upper | static_cast<uint32_t>(rows | 1);
}

// `known` is the key of a place.
bool Fits(uint64_t key, uint64_t known) {
  return key == known || (key >> 32 == known >> 32 && static_cast<uint32_t>(key) == 0);
}

// Copies the first ads of a request.
class Copier {
 public:
  Copier(const Executable& model, const Request& request, int64_t ads)
      : model_(model), info_(*model.info), request_(request), all_ads_(ads) {}

  // Null: a single ad takes more than `max_bytes`.
  std::unique_ptr<const ShownRequest> Copy(int64_t max_bytes) {
    ads_ = std::min(all_ads_, kMostAds);
    while (Bytes() > max_bytes) {
      if (ads_ == 1) return nullptr;
      ads_ /= 2;
    }
    auto shown = std::make_unique<ShownRequest>();
    for (size_t i = 0; i < info_.inputs.size(); ++i) {
      const Tensor part = Part(i);
      if (!info_.inputs[i].used) continue;
      if (HasShape(model_, i)) StateShape(i, *shown);
      // All values are 1: a request may leave them out.
      if (part.data == nullptr && part.elements() > 0) continue;
      shown->data.emplace_back(part.bytes());
      std::vector<char>& data = shown->data.back();
      if (!data.empty()) std::memcpy(data.data(), part.data, data.size());
      shown->inputs.push_back({info_.inputs[i].name, {part.dtype, part.dims, data.data()}});
      shown->bytes += static_cast<int64_t>(data.size());
    }
    return shown;
  }

 private:
  void StateShape(size_t i, ShownRequest& shown) const {
    const InputInfo& input = info_.inputs[i];
    if (input.feature >= 0 && input.stated) return;
    const TensorDims& dims = request_.inputs[i].dims;
    Level level = dims[0] == 1 ? Level::kUser : Level::kAd;
    if (all_ads_ == 1) level = input.stated ? input.level : Level::kUnknown;
    shown.shapes.push_back({input.name, level, {dims.begin() + 1, dims.end()}});
  }

  Tensor Part(size_t i) const {
    Tensor part = request_.inputs[i];
    const int feature = info_.inputs[i].feature;
    if (model_.info->inputs[i].free_length) {
      part.dims[0] = Ids(info_.features[feature]);
    } else if (info_.inputs[i].used && part.dims[0] == all_ads_) {
      part.dims[0] = ads_;
    }
    return part;
  }

  // How many ids the rows have.
  int64_t Ids(const FeatureInfo& feature) const {
    const Tensor& segments = request_.inputs[feature.segments];
    const int64_t rows = segments.dims[0] == all_ads_ ? ads_ : segments.dims[0];
    int64_t ids = 0;
    for (int64_t r = 0; r < rows; ++r) ids += segments.i32()[r];
    return ids;
  }

  int64_t Bytes() const {
    int64_t bytes = 0;
    for (size_t i = 0; i < info_.inputs.size(); ++i) {
      if (info_.inputs[i].used) {
        bytes = SaturatingAdd(bytes, static_cast<int64_t>(Part(i).bytes()));
      }
    }
    return bytes;
  }

  const Executable& model_;
  const ModelInfo& info_;
  const Request& request_;
  const int64_t all_ads_;
  int64_t ads_ = 0;
};

absl::Status Compare(const ModelInfo& info, const RunResult& written, const RunResult& found,
                     double tolerance) {
  for (size_t o = 0; o < written.outputs.size(); ++o) {
    const Tensor &wanted = written.outputs[o], &tensor = found.outputs[o];
    const auto fail = [&](auto... why) {
      return FailedPrecondition("output \"", info.outputs[o].name, "\" ", why...);
    };
    if (tensor.dims != wanted.dims) {
      return fail("has shape ", ToString(tensor.dims), ", as written ", ToString(wanted.dims));
    }
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const double value = ElementOf(tensor, i), as_written = ElementOf(wanted, i);
      if (IsNear(value, as_written, tolerance)) continue;
      return fail("element ", i, " is ", value, ", as written ", as_written, ", tolerance ",
                  tolerance);
    }
  }
  return absl::OkStatus();
}

void GiveInputs(const ShownRequest& shown, const ModelInfo& info, Request& request) {
  request.given.assign(info.inputs.size(), nullptr);
  for (const NamedTensor& input : shown.inputs) {
    for (size_t i = 0; i < request.given.size(); ++i) {
      if (info.inputs[i].name == input.name) request.given[i] = &input.tensor;
    }
  }
}

// Whether `plans` give what `model` gives by numpy's rules.
absl::Status CheckOn(const ShownRequest& shown, const Executable& model, const Executable& plans,
                     const RunOptions& run, double tolerance) {
  RunOptions bounded = run;
  bounded.max_memory_bytes = kMostRunBytes;
  WorkspaceState as_written, workspace;  // Each keeps its results.
  RunResult wanted, result;
  GiveInputs(shown, *model.info, as_written.user.request);
  const absl::Status ran = ExecuteGenerally(model, bounded, as_written, wanted);
  if (absl::IsResourceExhausted(ran)) {
    return ResourceExhausted("the request that showed it takes more than ", kMostRunBytes,
                             " bytes");
  }
  RETURN_IF_ERROR(ran);
  GiveInputs(shown, *model.info, workspace.user.request);
  RETURN_IF_ERROR(Execute(plans, bounded, workspace, result));
  if (result.stats.unproved) {
    return FailedPrecondition("the plan does not take the request that showed it");
  }
  return Compare(*model.info, wanted, result, tolerance);
}

// For a model with the same inputs.
std::unique_ptr<const ShownRequest> Copy(const ShownRequest& shown, const ModelInfo& info) {
  auto copy = std::make_unique<ShownRequest>(shown);
  for (size_t i = 0; i < copy->inputs.size(); ++i) {
    NamedTensor& input = copy->inputs[i];
    const auto same =
        std::find_if(info.inputs.begin(), info.inputs.end(),
                     [&](const InputInfo& known) { return known.name == input.name; });
    input.name = same->name;
    input.tensor.data = copy->data[i].data();
  }
  return copy;
}

}  // namespace

std::shared_ptr<ShapePlans> ShapePlans::For(const Executable& model) const {
  auto plans = std::make_shared<ShapePlans>(recipe_, tolerance_, max_bytes_);
  MutexLock lock(mu_), lock_of_plans(plans->mu_);
  plans->uses_ = uses_;
  plans->replace_at_ = replace_at_;
  for (const Place& place : places_) {
    // Whether it is refused may depend on the tables.
    if (place.refused) continue;
    Place& to = plans->places_.emplace_back(place);
    to.shown = Copy(*place.shown, *model.info);
    to.runs = 0;
    if (place.plan == nullptr) continue;
    auto copy = std::make_unique<ShapePlan>(*place.plan);
    copy->executable.info = model.info;
    copy->executable.tables = model.tables;
    copy->executable.user_cache = model.user_cache;
    to.plan = std::move(copy);
  }
  return plans;
}

std::shared_ptr<const ShapePlan> ShapePlans::Find(absl::FunctionRef<bool(const ShapePlan&)> fits) {
  MutexLock lock(mu_);
  for (Place& place : places_) {
    if (place.plan == nullptr || !fits(*place.plan)) continue;
    place.used = ++uses_;
    ++place.runs;
    return place.plan;
  }
  return nullptr;
}

std::vector<std::shared_ptr<const ShapePlan>> ShapePlans::Serving() const {
  std::vector<std::shared_ptr<const ShapePlan>> serving;
  MutexLock lock(mu_);
  for (const Place& place : places_) {
    if (place.plan != nullptr) serving.push_back(place.plan);
  }
  return serving;
}

bool ShapePlans::Show(const Executable& model, const Request& request) {
  const int64_t ads = AdsOf(model, request);
  if (ads == 0) return false;
  const uint64_t key = KeyOf(model, request, ads);
  MutexLock lock(mu_);
  for (Place& place : places_) {
    if (!Fits(key, place.key)) continue;
    place.used = ++uses_;
    return false;
  }
  try {
    return Take(model, request, ads, key);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool ShapePlans::Take(const Executable& model, const Request& request, int64_t ads, uint64_t key) {
  Copier copier(model, request, ads);
  Place place{.key = key};
  Place* leaver = nullptr;
  if (places_.size() < kMost) place.shown = copier.Copy(kMostBytes - ShownBytes());
  if (place.shown == nullptr && !places_.empty() && steady_clock::now() >= replace_at_) {
    leaver = &*std::min_element(places_.begin(), places_.end(),
                                [](auto& a, auto& b) { return a.used < b.used; });
    place.shown = copier.Copy(kMostBytes - ShownBytes() + leaver->shown->bytes);
  }
  if (place.shown == nullptr) return false;
  place.used = ++uses_;
  places_.push_back(std::move(place));  // Leaves the others where they are.
  if (leaver != nullptr) {
    leaver->leaves = true;
    replace_at_ = TimePoint::max();
  }
  return true;
}

int64_t ShapePlans::ShownBytes() const {
  int64_t bytes = 0;
  for (const Place& place : places_) bytes += place.shown->bytes;
  return bytes;
}

int64_t ShapePlans::bytes() const {
  int64_t bytes = 0;
  for (const auto& plan : Serving()) bytes += plan->bytes;
  return bytes;
}

bool ShapePlans::wanted() const {
  MutexLock lock(mu_);
  return std::any_of(places_.begin(), places_.end(), [](const Place& p) { return p.wanted(); });
}

absl::StatusOr<std::unique_ptr<const ShapePlan>> ShapePlans::MakeOne(const Executable& model,
                                                                     const ShownRequest& shown,
                                                                     const RunOptions& run,
                                                                     int64_t max_bytes) const {
  auto plan = MakeFor(shown.shapes, model, shown, run, max_bytes);
  if (plan.ok() || absl::IsCancelled(plan.status())) return plan;
  // With a single ad nobody knows whose a row is.  Where guesses lead nowhere, everything may be
  // the user's.
  std::vector<InputShape> shapes = shown.shapes;
  bool guessed = false;
  for (InputShape& shape : shapes) {
    if (shape.level != Level::kUnknown) continue;
    shape.level = Level::kUser;
    guessed = true;
  }
  return guessed ? MakeFor(std::move(shapes), model, shown, run, max_bytes) : std::move(plan);
}

absl::StatusOr<std::unique_ptr<const ShapePlan>> ShapePlans::MakeFor(std::vector<InputShape> shapes,
                                                                     const Executable& model,
                                                                     const ShownRequest& shown,
                                                                     const RunOptions& run,
                                                                     int64_t max_bytes) const {
  std::vector<InputStatement> statements = recipe_->statements;
  RETURN_IF_ERROR(AddStatements(shapes, recipe_->graph, statements));
  auto plan = std::make_unique<ShapePlan>();
  plan->shapes = std::move(shapes);
  Executable& executable = plan->executable;
  executable.info = model.info;
  executable.tables = model.tables;
  executable.refuse_non_finite = model.refuse_non_finite;
  executable.token = model.token;
  ASSIGN_OR_RETURN(
      const GraphSpecs specs,
      InferSpecs(recipe_->graph, StatedSpecs(recipe_->graph, statements), recipe_->statements));
  // Checked in the precision of the graph as written, where a defect shows.
  PlanRecipe in_fp32 = *recipe_;
  in_fp32.precision = {};
  PlanReport report;
  RETURN_IF_ERROR(MakePlans(in_fp32, statements, specs, executable, report));
  if (executable.schedule == nullptr) {
    return FailedPrecondition("ads are not proved independent: ", report.proof_failure);
  }
  plan->bytes = MemoryOf(executable).held() + shown.bytes;
  if (plan->bytes > max_bytes) {
    return ResourceExhausted("the plan takes ", plan->bytes, " bytes, and there are ", max_bytes,
                             " left for it");
  }
  RETURN_IF_ERROR(CheckOn(shown, model, executable, run, tolerance_));
  if (recipe_->precision.asks()) {
    RETURN_IF_ERROR(MakePlans(*recipe_, statements, specs, executable, report));
    plan->bytes = MemoryOf(executable).held() + shown.bytes;
  }
  // Not before, or runs that compare would leave users there.
  executable.user_cache = model.user_cache;
  return plan;
}

std::vector<ShapePlanInfo> ShapePlans::Make(const Executable& model, FetchFn fetch,
                                            const RunOptions& run, int64_t max_bytes) {
  MutexLock making(making_);
  const int64_t before = bytes();
  std::vector<ShapePlanInfo> made;
  while (true) {
    const auto begin = steady_clock::now();
    std::shared_ptr<const ShownRequest> shown;
    Place* place = nullptr;
    {
      MutexLock lock(mu_);
      std::erase_if(places_, [](const Place& known) { return known.leaves; });
      const auto wanted = std::find_if(places_.begin(), places_.end(),
                                       [](const Place& known) { return known.wanted(); });
      if (wanted == places_.end()) break;
      place = &*wanted;
      shown = place->shown;
    }
    const int64_t left = std::min(max_bytes - (bytes() - before), max_bytes_ - bytes());
    auto plan = WithinMemory([&] {
      FetchedRows rows;
      RunOptions with_rows = run;
      with_rows.fetched = &rows;
      fetch(shown->inputs, rows);
      return MakeOne(model, *shown, with_rows, left);
    });
    const LoadScope::WithoutRefusals for_what_is_said_of_it;
    absl::Status why = plan.status();
    // A step that had to end says less than why it had to.
    if (const absl::Status limit = LoadScope::Check(); !why.ok() && !limit.ok()) why = limit;
    if (absl::IsCancelled(why)) break;  // Another time.
    const auto end = steady_clock::now();
    MutexLock lock(mu_);
    if (why.ok()) {
      place->plan = *std::move(plan);
    } else {
      place->why_refused = std::string(Clip(why, kMaxRefusalBytes).message());
      place->refused = true;
    }
    replace_at_ = end + std::max<steady_clock::duration>(kPause, (end - begin) * kPauses);
    made.push_back(Describe(*place));
  }
  return made;
}

ShapePlanInfo ShapePlans::Describe(const Place& place) {
  ShapePlanInfo info{.inputs = place.shown->shapes, .why_refused = place.why_refused};
  if (place.plan != nullptr) {
    info.inputs = place.plan->shapes;
    info.state = ShapePlanInfo::State::kServing;
    info.bytes = place.plan->bytes;
    info.runs = place.runs;
  } else if (place.refused) {
    info.state = ShapePlanInfo::State::kRefused;
  }
  return info;
}

std::vector<ShapePlanInfo> ShapePlans::Describe() const {
  std::vector<ShapePlanInfo> plans;
  MutexLock lock(mu_);
  for (const Place& place : places_) plans.push_back(Describe(place));
  return plans;
}

std::vector<std::shared_ptr<const ShownRequest>> ShapePlans::Shown() const {
  std::vector<std::shared_ptr<const ShownRequest>> shown;
  MutexLock lock(mu_);
  for (const Place& place : places_) {
    if (place.runs > 0 || place.wanted()) shown.push_back(place.shown);
  }
  return shown;
}

}  // namespace ulfd::engine
