// Targets that our engine reaches or misses alone.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "engine/runtime/model.h"
#include "tests/bench/bench_models.h"
#include "tests/bench/profile.h"
#include "tests/bench/scratch_model.h"
#include "tests/bench/targets.h"

namespace ulfd::bench {
namespace {

using engine::Model;
using LoadedModel = std::unique_ptr<const Model>;

// The models that `build` writes, one with each of these lines in its manifest.
absl::StatusOr<std::vector<LoadedModel>> LoadWith(const TargetContext& context,
                                                  const std::string& name,
                                                  const std::function<void(ScratchModel&)>& build,
                                                  const std::vector<std::string>& manifests) {
  std::vector<LoadedModel> models;
  for (const std::string& manifest : manifests) {
    ScratchModel scratch;
    build(scratch);
    scratch.Manifest(manifest);
    ASSIGN_OR_RETURN(models.emplace_back(), scratch.Load(absl::StrCat(context.scratch, "/", name,
                                                                      "/", models.size() + 1)));
  }
  return models;
}

// "1.2 ms and 0.6 ms", of two contenders.
std::string BothTimes(const Turns& turns) {
  return absl::StrFormat("%.4g ms and %.4g ms", SpreadOf(turns.seconds[0]).median * 1e3,
                         SpreadOf(turns.seconds[1]).median * 1e3);
}

double LargestDifference(const engine::RunResult& a, const engine::RunResult& b) {
  double most = 0;
  for (int64_t i = 0; i < a.outputs[0].elements(); ++i) {
    most = std::max(most, std::abs(double{a.outputs[0].f32()[i]} - b.outputs[0].f32()[i]));
  }
  return most;
}

// Our model on one request; keeps what it borrows.
class OwnRun {
 public:
  OwnRun(const Model& model, int64_t ads, absl::Span<const int64_t> ids = {})
      : model_(model), request_(model.info(), ads, /*ids_per_user=*/100, /*table_rows=*/97, ids) {}
  absl::Span<const engine::NamedTensor> inputs() const { return request_.inputs(); }
  Contender contender(const std::string& name) {
    return {name, [this] { return model_.Run(request_.inputs(), {}, workspace_, result_); }};
  }
  const engine::RunResult& result() const { return result_; }

 private:
  const Model& model_;
  MadeUpRequest request_;
  engine::Workspace workspace_;
  engine::RunResult result_;
};

// Five pages of ads for one user, then the next user's.
class PagingRun {
 public:
  PagingRun(const Model& model, int64_t ads)
      : model_(model), request_(model.info(), ads, /*ids_per_user=*/1, /*table_rows=*/1) {
    const int history = model.FindInput("history");
    for (const engine::NamedTensor& input : request_.inputs()) {
      if (model.FindInput(input.name) == history) user_ = static_cast<float*>(input.tensor.data);
    }
  }
  Contender contender(const std::string& name) {
    return {name, [this] {
              user_[0] = static_cast<float>(page_++ / kPages % kUsers) / kUsers;
              RETURN_IF_ERROR(model_.Run(request_.inputs(), {}, workspace_, result_));
              const auto user = static_cast<double>(result_.stats.user_ns);
              user_shares_.push_back(user / (user + static_cast<double>(result_.stats.ad_ns)));
              return absl::OkStatus();
            }};
  }
  // How much faster that becomes at most if each user is computed once.
  double Possible() const {
    const double user = SpreadOf(user_shares_).median;
    return 1 / (user / kPages + (1 - user));
  }

 private:
  static constexpr int kPages = 5, kUsers = 1 << 20;

  const Model& model_;
  MadeUpRequest request_;
  float* user_ = nullptr;
  int64_t page_ = 0;
  std::vector<double> user_shares_;
  engine::Workspace workspace_;
  engine::RunResult result_;
};

// Requests whose ads are drawn from a million, of which the one of rank r has a weight of r^-1.15,
// or are new each time.
class RecurringAds {
 public:
  RecurringAds(const Model& model, int64_t ads, bool popular)
      : model_(model),
        request_(model.info(), ads, /*ids_per_user=*/100, /*table_rows=*/97),
        popular_(popular) {
    const int ad = model.FindInput("ad");
    for (const engine::NamedTensor& input : request_.inputs()) {
      if (model.FindInput(input.name) == ad) ads_ = input.tensor;
    }
    const int64_t columns = ads_.dims[1];
    for (int64_t i = columns; i < ads_.elements(); ++i) ads_.f32()[i] = ads_.f32()[i - columns];
    constexpr double kSkew = 1.15;
    std::mt19937_64 random(1);
    drawn_.resize(popular ? 1 << 22 : 0);
    for (int32_t& id : drawn_) {
      const double u = std::uniform_real_distribution<>()(random);
      id = static_cast<int32_t>(std::pow(1 - u * (1 - std::pow(kAds, 1 - kSkew)), 1 / (1 - kSkew)));
    }
  }
  absl::Status Run() {
    const int64_t columns = ads_.dims[1];
    for (int64_t i = 0; i < ads_.dims[0]; ++i) {
      const int64_t id = popular_ ? drawn_[next_++ % drawn_.size()] : kAds + ++next_;
      // In the first columns, so that drawing ads takes no time beside computing them.
      float* const row = ads_.f32() + i * columns;
      row[0] = static_cast<float>(id % 4096) / 4096;
      row[1] = static_cast<float>(id / 4096 % 4096) / 4096;
      row[2] = static_cast<float>(id / 4096 / 4096) / 4096;
    }
    return model_.Run(request_.inputs(), {}, workspace_, result_);
  }
  Contender contender(const std::string& name) {
    return {name, [this] { return Run(); }};
  }
  // Of the last run's scores from those of `other`.
  absl::StatusOr<double> Difference(const Model& other) {
    engine::Workspace workspace;
    engine::RunResult result;
    RETURN_IF_ERROR(other.Run(request_.inputs(), {}, workspace, result));
    return LargestDifference(result, result_);
  }

 private:
  static constexpr int64_t kAds = 1000000;

  const Model& model_;
  MadeUpRequest request_;
  const bool popular_;
  engine::Tensor ads_;
  std::vector<int32_t> drawn_;
  uint64_t next_ = 0;
  engine::Workspace workspace_;
  engine::RunResult result_;
};

void Judge(TargetLine& line, const Spread& value, bool reached, const std::string& unit) {
  line.reached = Format(value, unit);
  line.verdict = reached ? Verdict::kReached : Verdict::kMissed;
  line.numbers["value"] = value.median;
  line.numbers["low"] = value.low;
  line.numbers["high"] = value.high;
}

// The ids of a text table.
std::vector<int64_t> IdsOf(const std::string& table) {
  std::vector<int64_t> ids;
  std::ifstream file(table);
  for (std::string line; std::getline(file, line);) {
    int64_t id = 0;
    if (absl::SimpleAtoi(line.substr(0, line.find(',')), &id)) ids.push_back(id);
  }
  return ids;
}

struct GemmModel {
  std::string name;
  std::function<void(ScratchModel&)> build;
  int64_t ads;
  double flops;  // Of the FCs, the user's columns once.
};

// 2 x the weights of an MLP.
double FlopsPerRow(const std::vector<int32_t>& widths) {
  double flops = 0;
  for (size_t i = 1; i < widths.size(); ++i) flops += 2.0 * widths[i - 1] * widths[i];
  return flops;
}

std::vector<GemmModel> GemmModels() {
  std::vector<GemmModel> models;
  for (const std::vector<int32_t>& widths :
       {std::vector<int32_t>{306, 200, 80, 2}, {1024, 512, 256, 128, 2}}) {
    for (const int64_t ads : {200, 1000}) {
      models.push_back({absl::StrCat("MLP ", absl::StrJoin(widths, "-")),
                        [widths](ScratchModel& m) { BuildMlp(m, widths, kActivation); }, ads,
                        FlopsPerRow(widths) * static_cast<double>(ads)});
    }
  }
  models.push_back({"user 732 + ad 306, 200-80-2",
                    [](ScratchModel& m) {
                      BuildUserMlp(m, 732, 306, {200, 80, 2}, kActivation);
                    },
                    1000, FlopsPerRow({306, 200, 80, 2}) * 1000 + FlopsPerRow({732, 200})});
  return models;
}

int64_t ResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    long kib = 0;
    if (std::sscanf(line.c_str(), "VmRSS: %ld kB", &kib) == 1) return int64_t{kib} * 1024;
  }
  return 0;
}

// What a fresh process says of loading `directory`.
absl::StatusOr<nlohmann::json> LoadInOwnProcess(const TargetContext& context,
                                                const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string text, RunProgram({context.program, "--load=" + directory}));
  return nlohmann::json::parse(text);
}

}  // namespace

absl::Status MeasureTdm(TargetContext& context, const std::string& row) {
  constexpr double kRequests = 4000, kPeak = 78;
  TargetLine line{.row = row, .work = "tdm_dnn, 200 ads, whole request (210 inputs, lookups)"};
  const std::string directory = context.shared + "/models/tdm_dnn/1";
  if (!std::filesystem::is_directory(directory)) {
    Skip(context, row, line.work, "at least 4000 requests/s", "no ../shared/models/tdm_dnn here");
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const LoadedModel model,
                   Model::Load({.directory = directory, .backend = ScratchModel::backend}));
  const std::vector<int64_t> ids = IdsOf(directory + "/item_emb");
  OwnRun run(*model, 200, ids);
  ASSIGN_OR_RETURN(const Turns turns, RunInTurns({run.contender("ours")}, context.turns));
  const Spread peak = SpreadOf(turns.peak_gflops);
  const double scale = std::min(1.0, peak.median / kPeak);
  std::vector<double> rates;
  for (const double seconds : turns.seconds[0]) rates.push_back(1 / seconds);
  const Spread rate = SpreadOf(rates);
  line.target = absl::StrFormat("at least %.0f requests/s", kRequests * scale);
  line.detail =
      absl::StrFormat("%.4g ms; peak %.0f GFLOP/s%s", SpreadOf(turns.seconds[0]).median * 1e3,
                      peak.median, scale < 1 ? ": below 78, so the target of 4000 is scaled" : "");
  line.numbers["peak_gflops"] = peak.median;
  line.numbers["target"] = kRequests * scale;
  Judge(line, rate, rate.median >= kRequests * scale, " requests/s");
  RETURN_IF_ERROR(AddProfile(context, *model, run.inputs(), 200, line));
  context.lines.push_back(std::move(line));
  return absl::OkStatus();
}

absl::Status MeasureGemmShare(TargetContext& context, const std::string& row) {
  constexpr double kShare = 75;
  for (const GemmModel& gemm : GemmModels()) {
    ScratchModel scratch;
    gemm.build(scratch);
    const std::string directory = absl::StrCat(context.scratch, "/", row, "/1");
    ASSIGN_OR_RETURN(const LoadedModel model, scratch.Load(directory));
    OwnRun run(*model, gemm.ads);
    ASSIGN_OR_RETURN(const Turns turns, RunInTurns({run.contender("ours")}, context.turns));
    std::vector<double> shares;
    for (size_t i = 0; i < turns.peak_gflops.size(); ++i) {
      shares.push_back(100 * gemm.flops / turns.seconds[0][i] / 1e9 / turns.peak_gflops[i]);
    }
    TargetLine line{.row = row,
                    .work = absl::StrCat(gemm.name, ", ", gemm.ads, " ads: share of the FMA peak"),
                    .target = "at least 75 %"};
    const Spread peak = SpreadOf(turns.peak_gflops), seconds = SpreadOf(turns.seconds[0]);
    line.detail = absl::StrFormat("%.4g ms, %.0f of %.0f GFLOP/s", seconds.median * 1e3,
                                  gemm.flops / seconds.median / 1e9, peak.median);
    line.numbers["ours_ms"] = seconds.median * 1e3;
    line.numbers["peak_gflops"] = peak.median;
    const Spread share = SpreadOf(shares);
    Judge(line, share, share.median >= kShare, " %");
    RETURN_IF_ERROR(AddProfile(context, *model, run.inputs(), gemm.ads, line));
    context.lines.push_back(std::move(line));
  }
  return absl::OkStatus();
}

absl::Status MeasureLinear(TargetContext& context, const std::string& row) {
  const std::vector<std::pair<std::string, std::function<void(ScratchModel&)>>> models = {
      {"DIN", BuildDin},
      {"MLP 306-200-80-2",
       [](ScratchModel& m) {
         BuildMlp(m, {306, 200, 80, 2}, kActivation);
       }},
  };
  for (const auto& [name, build] : models) {
    ScratchModel scratch;
    build(scratch);
    ASSIGN_OR_RETURN(const LoadedModel model,
                     scratch.Load(absl::StrCat(context.scratch, "/", row, "/1")));
    OwnRun few(*model, 200), many(*model, 2000);
    ASSIGN_OR_RETURN(const Turns turns,
                     RunInTurns({few.contender("200"), many.contender("2000")}, context.turns));
    const Spread ratio = SpreadOf(Ratios(turns.seconds[1], turns.seconds[0]));
    TargetLine line{.row = row,
                    .work = absl::StrCat(name, ": time of 2000 ads over time of 200"),
                    .target = "at most 10 x"};
    line.detail = BothTimes(turns);
    Judge(line, ratio, ratio.median <= 10, " x");
    context.lines.push_back(std::move(line));
  }
  return absl::OkStatus();
}

absl::Status MeasurePaging(TargetContext& context, const std::string& row) {
  constexpr int64_t kAds = 50;
  constexpr int32_t kSteps = 50;
  constexpr double kFaster = 2.5;
  for (const int32_t width : {64, 128}) {
    ASSIGN_OR_RETURN(const std::vector<LoadedModel> models,
                     LoadWith(context, absl::StrCat(row, "_", width),
                              [&](ScratchModel& m) { BuildGru(m, kSteps, width); },
                              {"", "user_cache_bytes: 16000000"}));
    PagingRun without(*models[0], kAds), with(*models[1], kAds);
    ASSIGN_OR_RETURN(
        const Turns turns,
        RunInTurns({without.contender("without"), with.contender("with")}, context.turns));
    const Spread ratio = SpreadOf(Ratios(turns.seconds[0], turns.seconds[1]));
    const double possible = without.Possible();
    TargetLine line{
        .row = row,
        .work = absl::StrCat("GRU of ", width, " columns over ", kSteps, " steps, 5 pages of ",
                             kAds, " ads per user: user_cache_bytes over none"),
        .target = possible < kFaster ? "none: the ads take too much" : "at least 2.5 x"};
    const CacheStats cache = models[1]->user_cache();
    line.detail = absl::StrFormat(
        "%s; %.1f %% hits; at most %.2f x is possible", BothTimes(turns),
        100.0 * static_cast<double>(cache.hits) / static_cast<double>(cache.hits + cache.misses),
        possible);
    line.numbers["possible"] = possible;
    Judge(line, ratio, ratio.median >= kFaster, " x");
    if (possible < kFaster) line.verdict = Verdict::kInformation;
    context.lines.push_back(std::move(line));
  }
  return absl::OkStatus();
}

absl::Status MeasureAdCache(TargetContext& context, const std::string& row) {
  constexpr int64_t kAds = 200;
  struct Case {
    std::string name, asks;
    std::function<void(ScratchModel&)> build;
    bool popular;   // Or new each time.
    double target;  // Times the speed without.
  };
  const auto mlp = [](ScratchModel& m) { BuildUserMlp(m, 732, 306, {200, 80, 2}, kActivation); };
  for (const Case& c : {Case{"user 732 + ad 306, 200-80-2", "2", mlp, true, 2},
                        Case{"user 732 + ad 306, 200-80-2", "0.97", mlp, false, 0.97},
                        Case{"DIN", "0.99", BuildDin, true, 0.99}}) {
    ASSIGN_OR_RETURN(const std::vector<LoadedModel> models,
                     LoadWith(context, absl::StrCat(row, "_", c.popular, c.target), c.build,
                              {"", "ad_cache_bytes: 256000000"}));
    RecurringAds without(*models[0], kAds, c.popular), with(*models[1], kAds, c.popular);
    // Until the cache has what it is going to have.
    const int warm_up = context.turns.seconds < 0.01 ? 10 : 20000;
    for (int i = 0; i < warm_up; ++i) RETURN_IF_ERROR(with.Run());
    const engine::AdCacheStats before = models[1]->ad_cache();
    ASSIGN_OR_RETURN(
        const Turns turns,
        RunInTurns({without.contender("without"), with.contender("with")}, context.turns));
    const Spread ratio = SpreadOf(Ratios(turns.seconds[0], turns.seconds[1]));
    const engine::AdCacheStats after = models[1]->ad_cache();
    const auto seen = static_cast<double>(after.hits - before.hits + after.misses - before.misses);
    TargetLine line{
        .row = row,
        .work = absl::StrCat(c.name, ", ", kAds,
                             (c.popular ? " ads, Zipf over 1 M of them: " : " ads, all new: "),
                             "ad_cache_bytes over none"),
        .target = absl::StrCat("at least ", c.asks, " x")};
    ASSIGN_OR_RETURN(const double difference, with.Difference(*models[0]));
    line.detail = absl::StrFormat(
        "%s; %s, scores differ by up to %.2g", BothTimes(turns),
        seen == 0 ? "computing is faster"
                  : absl::StrFormat("%.1f %% hits",
                                    100 * static_cast<double>(after.hits - before.hits) / seen),
        difference);
    Judge(line, ratio, ratio.median >= c.target, " x");
    context.lines.push_back(std::move(line));
  }
  return absl::OkStatus();
}

absl::Status MeasurePrecision(TargetContext& context, const std::string& row,
                              const std::string& work, engine::Precision precision,
                              const std::function<void(ScratchModel&)>& build, double target) {
  constexpr int64_t kAds = 200;
  const std::string title =
      absl::StrCat(work, ", ", kAds, " ads: ", engine::Name(precision), " over fp32");
  const std::string wanted = absl::StrFormat("at least %.4g x", target);
  if (!engine::Has(precision)) {
    Skip(context, row, title, wanted, absl::StrCat("no ", engine::InstructionsOf(precision)));
    return absl::OkStatus();
  }
  const std::string asks =
      absl::StrCat("precision: PRECISION_", absl::AsciiStrToUpper(engine::Name(precision)));
  ASSIGN_OR_RETURN(const std::vector<LoadedModel> models,
                   LoadWith(context, row, build, {"", asks}));
  OwnRun fp32(*models[0], kAds), rounded(*models[1], kAds);
  ASSIGN_OR_RETURN(const Turns turns,
                   RunInTurns({fp32.contender("fp32"), rounded.contender(asks)}, context.turns));
  const Spread ratio = SpreadOf(Ratios(turns.seconds[0], turns.seconds[1]));
  TargetLine line{.row = row, .work = title, .target = wanted};
  line.detail = absl::StrFormat("%s; scores differ by up to %.2g", BothTimes(turns),
                                LargestDifference(rounded.result(), fp32.result()));
  Judge(line, ratio, ratio.median >= target, " x");
  RETURN_IF_ERROR(AddProfile(context, *models[1], rounded.inputs(), kAds, line));
  context.lines.push_back(std::move(line));
  return absl::OkStatus();
}

absl::Status MeasureLoad(TargetContext& context, const std::string& row) {
  std::vector<std::pair<std::string, std::string>> models;
  const std::string shared = context.shared + "/models/din/1";
  if (std::filesystem::is_directory(shared)) models.push_back({"the DIN export", shared});
  ScratchModel scratch;
  BuildDinWithLookups(scratch);
  const std::string directory = absl::StrCat(context.scratch, "/", row, "/1");
  RETURN_IF_ERROR(scratch.Load(directory).status());
  models.push_back({"a DIN with tables of 10,000, 10,000 and 1,000 rows", directory});
  for (const auto& [name, path] : models) {
    std::vector<double> milliseconds;
    for (int turn = 0; turn < context.turns.turns; ++turn) {
      ASSIGN_OR_RETURN(const nlohmann::json load, LoadInOwnProcess(context, path));
      milliseconds.push_back(load.at("load_ms"));
    }
    TargetLine line{.row = row,
                    .work = absl::StrCat("loading ", name, " in a fresh process, text parsed"),
                    .target = "less than 300 ms"};
    const Spread spread = SpreadOf(milliseconds);
    Judge(line, spread, spread.median < 300, " ms");
    context.lines.push_back(std::move(line));
  }
  return absl::OkStatus();
}

absl::Status MeasureMemory(TargetContext& context, const std::string& row) {
  constexpr double kMiB = 1 << 20;
  constexpr int64_t kRows = 200000, kDim = 36;
  ScratchModel scratch;
  scratch.Feature("ad", kDim, kRows);
  scratch.Embedding({"ad"}, {"ad_e"}, "udf_type: 0", /*user=*/false);
  scratch.Layer("inner_product_layer", {"ad_e"}, "fc1", "", {{kDim, 1024}, {1024}});
  scratch.Layer("inner_product_layer", {"fc1"}, "fc2", "", {{1024, 1024}, {1024}});
  scratch.Layer("inner_product_layer", {"fc2"}, "score", "", {{1024, 2}, {2}});
  const std::string directory = absl::StrCat(context.scratch, "/", row, "/1");
  RETURN_IF_ERROR(scratch.Load(directory).status());
  ASSIGN_OR_RETURN(const nlohmann::json load, LoadInOwnProcess(context, directory));
  const double payload = load.at("payload_bytes");
  const double limit = 1.3 * payload + 16 * kMiB;
  for (const auto& [key, what] : {std::pair{"rss_delta_bytes", "growth of the resident set"},
                                  {"memory_bytes", "the model's own figure"}}) {
    const double bytes = load.at(key);
    TargetLine line{.row = row,
                    .work = absl::StrCat("memory of a model with a table of 200,000 x 36: ", what),
                    .target = absl::StrFormat("at most %.1f MiB (1.3 x %.1f + 16)", limit / kMiB,
                                              payload / kMiB)};
    Judge(line, {bytes / kMiB, bytes / kMiB, bytes / kMiB}, bytes <= limit, " MiB");
    context.lines.push_back(std::move(line));
  }
  return absl::OkStatus();
}

absl::Status AddProfile(const TargetContext& context, const Model& model,
                        absl::Span<const engine::NamedTensor> inputs, int64_t ads,
                        TargetLine& line) {
  if (!context.profile) return absl::OkStatus();
  ASSIGN_OR_RETURN(line.profile, ProfileTable(model, inputs, ads, context.turns.seconds));
  return absl::OkStatus();
}

absl::Status PrintLoad(const std::string& directory) {
  const int64_t before = ResidentBytes();
  const auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const LoadedModel model, Model::Load({.directory = directory}));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  int64_t payload = model->info().weight_bytes;  // Numbers alone, without any index.
  for (const engine::TableInfo& table : model->info().tables) {
    payload += table.rows * table.dim * static_cast<int64_t>(sizeof(float));
  }
  const nlohmann::json load = {{"load_ms", took.count()},
                               {"rss_delta_bytes", ResidentBytes() - before},
                               {"memory_bytes", model->info().memory_bytes},
                               {"payload_bytes", payload}};
  std::printf("%s\n", load.dump().c_str());
  return absl::OkStatus();
}

}  // namespace ulfd::bench
