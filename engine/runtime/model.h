// A loaded model: from a version directory to scores.  This is the whole interface of the engine to
// the daemon and the tools.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_MODEL_H_
#define ULFD_ENGINE_RUNTIME_MODEL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/lru_cache.h"
#include "engine/caches/ad_cache.h"
#include "engine/directory/model_directory.h"
#include "engine/embedding/row_set.h"
#include "engine/embedding/row_tier.h"
#include "engine/graph/cancellation.h"
#include "engine/graph/rewrite.h"
#include "engine/kernels/backend.h"
#include "engine/plan/model_info.h"
#include "engine/plan/plan_info.h"
#include "engine/plan/precision.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

class EmbeddingTable;  // engine/embedding/table.h
class RedisClusters;   // engine/stores/redis_store.h
struct LayerType;      // engine/layers/layer.h
struct LoadedModel;    // engine/runtime/model_loader.h
struct TableRows;
class Model;

// The shape of an input: [rows, row_shape...], and whose rows they are; kUnknown: to be guessed.
struct InputShape {
  std::string name;
  Level level = Level::kUnknown;
  std::vector<int64_t> row_shape;
};

// A plan for requests of shapes that neither graph nor manifest states (see Model::MakePlans).
struct ShapePlanInfo {
  enum class State : uint8_t { kWanted, kServing, kRefused };
  std::vector<InputShape> inputs;
  State state = State::kWanted;
  std::string why_refused;
  int64_t bytes = 0;  // What the model holds more for it.
  int64_t runs = 0;   // Requests that it took.
};
// "wanted", "serving", "refused".
absl::string_view Name(ShapePlanInfo::State state);
// "x: user [20], y: ad [8]", for people.
std::string ShapesText(absl::Span<const InputShape> inputs);

struct LoadOptions {
  std::string directory;  // A version directory, such as models/din/1.
  std::string name;       // For messages; default: the name of the directory above.
  int64_t version = 0;    // For messages; default: the name of the directory if that is a number.
  // false: the graph is executed as it is written.
  bool optimise = true;
  // Rewrites to leave out; the manifest's `exact` is added.
  PassOptions passes;
  // What computes products with weights; nothing: what the manifest says.
  std::optional<Backend> backend;
  // In which precision; nothing: as the manifest says.
  std::optional<PrecisionChoice> precision;
  // Keeps ads even where computing them takes less: for tests.
  bool always_keep_ads = false;
  // Shapes to plan for, as the manifest's `inputs` would state them.
  std::vector<InputShape> inputs;
  // Layer types beyond the built-in ones (LayerPlugins); borrowed, they outlive the model.
  absl::Span<const LayerType* const> layer_types = {};
  // Where tables in Redis are; borrowed, it outlives the model.  Null: nowhere.
  const RedisClusters* redis = nullptr;
};

// A delta: the directory deltas/EPOCH of the version.
struct DeltaSource {
  int64_t epoch = 0;
  std::string directory;
};

// What became of deltas.
struct DeltasResult {
  // With those that could be applied; null: none could.
  std::unique_ptr<const Model> model;
  // Per delta, in order; shorter where one could not be read for now, which ends them.
  std::vector<absl::Status> statuses;
};

// An input of a request, under its ULF name.  `data` is borrowed until Run returns.
struct NamedTensor {
  absl::string_view name;
  Tensor tensor;
};

// What one Run did.  Unit: nanoseconds.
struct RunStats {
  int64_t embed_ns = 0, user_ns = 0, ad_ns = 0;
  // Per ModelInfo::tables: ids that were looked up, and those of them that the table lacked; for a
  // user out of the cache, as when it was computed.
  std::vector<int64_t> looked_up_ids, missing_ids;
  // Whether the optimised plan ran.
  bool optimised = false;
  // Whether anything was computed in one piece by numpy's rules, because no proof holds for the
  // model (ModelInfo::proof_failure) or the request has other shapes than the graph tells.
  bool unproved = false;
  // Whether it showed shapes that now want a plan (see Model::MakePlans).
  bool wants_plan = false;
  // Per layer of the file: how often its kernels ran and over how many rows (leading dimension) in
  // total.  Filled only with RunOptions::count_layers.
  struct LayerCount {
    int64_t runs = 0, rows = 0;
  };
  std::vector<LayerCount> layers;
};

// What each step of the plan took in one Run, for profiles.
struct StepTimes {
  bool optimised = false;         // Whether these are the steps of the optimised plan.
  std::vector<int64_t> ns, runs;  // Per step.  Each time holds a reading of the clock per run.
};

struct RunOptions {
  // Keeps every tensor of the graph, not only the outputs; RunResult::tensors then has them under
  // their last names.
  bool keep_all = false;
  bool count_layers = false;
  // Runs the graph as written where the optimised plan would run: for differential tests and
  // benchmarks.
  bool reference = false;
  // Nobody asked for it: its shapes want no plan, and NaN is no reason to refuse its scores.
  bool made_up = false;
  // Makes the request one of several users: how many ads each has, 0 or more.  Inputs are then the
  // users' own requests put one after another: user-level ones have a row per user, ad-level ones
  // sum(ads_per_user) rows grouped by user; so have the outputs, which are what each user alone
  // would get.  Empty: one user, whose inputs tell how many ads there are.
  absl::Span<const int64_t> ads_per_user;
  // Rows per tile of ads, at most as many as the plan has room for; 0: chosen by the plan.  For
  // tests.
  int64_t tile_rows = 0;
  // Memory that the run may take for values, scratch and outputs; 0: no limit.  It is known before
  // anything is computed or reserved: RESOURCE_EXHAUSTED names the largest tensor (UNAVAILABLE: the
  // system has no such memory).  Unit: bytes.
  int64_t max_memory_bytes = 0;
  // Asked about the outputs, of which nothing but type and dimensions is there yet, before anything
  // is computed or reserved; an error ends the run.  Null: they are good.
  const std::function<absl::Status(absl::Span<const Tensor>)>* check_outputs = nullptr;
  // Polled between stages and tiles, and every few milliseconds within steps whose work grows
  // faster than their tensors; true ends the run with CANCELLED.
  const std::function<bool()>* stop = nullptr;
  // Rows of tables that lie in stores (Model::FetchRows).  Null: the run fetches them, and blocks.
  // RunAds does not: it wants those that RunUserPart had.
  const FetchedRows* fetched = nullptr;
  // Filled if given; costs two readings of the clock per step.
  StepTimes* steps = nullptr;
};

// Results, valid until the next Run with the same Workspace, and as long as the memory of the
// request is: with keep_all they include its tensors and views of them.
struct RunResult {
  std::vector<Tensor> outputs;       // Per ModelInfo::outputs.
  std::vector<NamedTensor> tensors;  // With keep_all.
  RunStats stats;
};

struct WorkspaceState;  // engine/runtime/workspace.h
struct Request;         // engine/runtime/request.h

// Scratch memory of one worker: arenas and shapes, reused from call to call and across models;
// bounded by what the largest request needs, or by RunOptions::max_memory_bytes.  Not thread-safe.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;
  // Memory held now.
  int64_t bytes() const;
  // Gives back large blocks of which the runs since the last call used less than half: called now
  // and then, it keeps what the usual requests need, and not what an unusual one needed.  Results
  // are invalid afterwards.  Whether there is anything left that a further call might give back.
  bool Shrink();

 private:
  friend class Model;
  std::unique_ptr<WorkspaceState> state_;
};

struct UserPart;  // engine/runtime/workspace.h

// What is computed once for the users of a request, and the results of its ads as far as they are
// computed: for running the ads of one request on several threads.  Reused from request to request.
class SharedUserPart {
 public:
  SharedUserPart();
  ~SharedUserPart();
  SharedUserPart(SharedUserPart&&) noexcept;
  SharedUserPart& operator=(SharedUserPart&&) noexcept;
  // Ads left to compute, for Model::RunAds; 0 where RunUserPart did everything.
  int64_t ads() const { return ads_; }
  // Memory that it keeps, outputs included.
  int64_t bytes() const;

 private:
  friend class Model;
  std::unique_ptr<UserPart> state_;
  int64_t ads_ = 0;
};

// Adds what RunAds counted to the request's stats.
void AddAds(const RunStats& from, RunStats& to);

// Any number of threads may Run it, each with a workspace of its own.  After Load only plans for
// shapes that requests show are added, which Run takes without a lock.
class Model {
 public:
  // Reads, checks and prepares everything in the directory.  Slow; errors name layer, tensor, file
  // and line, what was found and what was wanted, prefixed with `model "NAME" vVERSION: `.
  static absl::StatusOr<std::unique_ptr<const Model>> Load(const LoadOptions& options);
  ~Model();

  // Models with these deltas, in this order, on top of what this one has.  They share whatever the
  // deltas leave alone.  Each delta is applied as a whole or not at all: INVALID_ARGUMENT,
  // FAILED_PRECONDITION (it does not follow the epoch that is there) and DATA_LOSS name file, table
  // and id.  Slow; as Load, on no serving thread.
  DeltasResult WithDeltas(absl::Span<const DeltaSource> deltas) const;
  // Its tables, per ModelInfo::tables; immutable, they may outlive it.
  const std::vector<std::shared_ptr<const EmbeddingTable>>& tables() const;
  // The same with `rows` for what `folded`, a table of this model or one before it, held.  Null if
  // the table has another base by now.
  std::unique_ptr<const Model> WithFolded(const EmbeddingTable& folded,
                                          std::shared_ptr<const TableRows> rows) const;
  // Every piece of memory that it holds, by address, and its bytes: pieces of several models may be
  // the same.
  std::vector<std::pair<const void*, int64_t>> MemoryPieces() const;

  const ModelInfo& info() const;
  // How the graph runs as it is written, and as the optimiser rewrote it (nothing if it did not:
  // see ModelInfo::not_optimised).  Made on each call, for explanations.
  PlanInfo WrittenPlan() const;
  std::optional<PlanInfo> OptimisedPlan() const;
  // Plans for shapes that neither graph nor manifest states.  A request of such shapes runs by
  // numpy's rules, and is remembered: a copy of it, cut to a few ads.  MakePlans then makes a plan
  // as if its shapes were stated, runs both ways on the copy, and takes the plan for such requests
  // from then on if every output is within the manifest's golden_tolerance.  There are at most
  // eight, good or refused; a ninth takes the place of the one that was not used for longest.
  //
  // Whether MakePlans has something to do.
  bool WantsPlans() const;
  // Makes the plans that are wanted and returns what became of them.  Slow; one thread at a time
  // does it, others wait.  `run`: for the runs that compare; a stop leaves what is left wanted.
  // `max_bytes`: what new plans may take together.  REQUIRES: UsesOneThread().
  std::vector<ShapePlanInfo> MakePlans(const RunOptions& run, int64_t max_bytes) const;
  // Runs what plans of another model were made from and have been used for, so that this one wants
  // plans for the same shapes.  Requests that it refuses are left out.  REQUIRES: UsesOneThread().
  void WantPlansOf(const Model& before, const RunOptions& run, Workspace& workspace,
                   RunResult& result) const;
  std::vector<ShapePlanInfo> shape_plans() const;
  // Everything the model holds now.
  int64_t memory_bytes() const;
  // Whether some requests may be cut into tiles and merged with others: those of the shapes that
  // are known at load, or of those that have plans.
  bool row_separable() const;
  // Whether such requests may have several users.
  bool joins_users() const;

  // Layers that subtract nearly equal large numbers (see engine/graph/cancellation.h), from the
  // weights alone or, where `observed` is given, from the magnitudes of its tensors: the result of
  // a run with RunOptions::keep_all.
  std::vector<Cancellation> Cancellations(const RunResult* observed) const;
  // -1 if there is none of that name.
  int FindInput(absl::string_view name) const;
  int FindMatrix(absl::string_view name) const;
  int FindOutput(absl::string_view name) const;
  int FindFeature(absl::string_view name) const;

  // Up to `count` ids (repeated, if there are few) that every table of the feature holds, picked by
  // `seed`: for made-up requests.
  std::vector<int64_t> SampleIds(int feature, int64_t count, uint64_t seed) const;

  // Of the cache of users (user_cache_bytes of the manifest); all 0 without one.
  CacheStats user_cache() const;
  // Of the cache of ads (ad_cache_bytes); all 0 without one.
  AdCacheStats ad_cache() const;

  // For models with ModelInfo::fetch_timeout.  FindRows lists the rows that `inputs` need of tables
  // in stores, and copies those that are in memory; it never blocks.  Inputs that are none are left
  // to Run.  RESOURCE_EXHAUSTED if the rows take more than `max_bytes` (0: no limit).  FetchRows
  // brings the rest; it blocks, but not for long beyond `deadline`.  Its error is for the log: a
  // run goes on with what is there, unless CheckRows says UNAVAILABLE, because rows of a table are
  // late that must not be left out.
  absl::Status FindRows(absl::Span<const NamedTensor> inputs, int64_t max_bytes,
                        FetchedRows& rows) const;
  absl::Status FetchRows(TimePoint deadline, FetchedRows& rows) const;
  absl::Status CheckRows(const FetchedRows& rows) const;
  // Per ModelInfo::tables; nothing for those in memory.
  std::vector<std::optional<RowTierStats>> TierStats() const;

  // Calls `missing` for each id of `inputs` and each table, per ModelInfo::tables, that its feature
  // reads and that lacks it.  What Run counts, unless several layers look up the same feature.
  // Inputs that are none are left out.  `fetched`: as for Run; null without tables in stores.
  void ForEachMissingId(absl::Span<const NamedTensor> inputs, const FetchedRows* fetched,
                        absl::FunctionRef<void(size_t table, int64_t id)> missing) const;

  // Scores users (one, or those of options.ads_per_user) against the ads of `inputs`, in any order,
  // each at most once.  numpy semantics decide on row counts that no level is proved for.
  // `f.values` and `f.segments` may be left out: all values 1; one id per row for an ad feature,
  // all ids in one row for a user feature.  Denormal numbers count as 0 (FlushDenormals).
  // INVALID_ARGUMENT names the input and what was wanted;
  // FAILED_PRECONDITION the output and the row of a NaN or infinity that the manifest refuses;
  // UNIMPLEMENTED: no plan computes several users of these shapes together, score them one by one.
  // Fills `result`, whose capacity is reused.  REQUIRES: UsesOneThread() (engine/tensor/onednn.h).
  absl::Status Run(absl::Span<const NamedTensor> inputs, const RunOptions& options,
                   Workspace& workspace, RunResult& result) const;

  // The first half of Run: everything but the ads' part.  A request that cannot be cut (no proof,
  // or too many users) is computed as by Run, and then part.ads() is 0.  `result` is filled, but
  // for the rows of ads in its outputs and what RunAds counts; it and the outputs are valid until
  // the next run with `part` or `workspace`.  The inputs' data must stay until RunAds is done.
  absl::Status RunUserPart(absl::Span<const NamedTensor> inputs, const RunOptions& options,
                           Workspace& workspace, SharedUserPart& part, RunResult& result) const;
  // The second half, for ads [begin, end) of [0, part.ads()), into their rows of `outputs`, those
  // of RunUserPart's result.  Any number of threads at a time, for ranges that do not overlap, each
  // with a workspace and stats of its own.  Those are added to, as is `options.steps`, with as many
  // as RunUserPart gave.  Other options as for it.  INVALID_ARGUMENT for a range that is none.
  absl::Status RunAds(const SharedUserPart& part, const RunOptions& options, int64_t begin,
                      int64_t end, Workspace& workspace, absl::Span<const Tensor> outputs,
                      RunStats& stats) const;

  // Runs a made-up request of `ads` ads.  It touches weights and code before the model is
  // published, and shows that values come out.  NaN or infinity is for the caller to report, from
  // `result`.  Does nothing, and leaves `result` without outputs, if the shape of a dense input is
  // not known, or the request is none of the model's where it is a guess that the rows of an input
  // are the ads': a guess could refuse a good model.  `options`: as for Run.
  absl::Status RunWarmup(int64_t ads, const RunOptions& options, Workspace& workspace,
                         RunResult& result) const;

 private:
  Model();
  // The ids that `inputs` look up in each table.
  void ForEachLookup(
      absl::Span<const NamedTensor> inputs,
      absl::FunctionRef<void(int table, absl::Span<const int64_t> ids)> lookup) const;
  absl::Status FetchNow(absl::Span<const NamedTensor> inputs, const RunOptions& options,
                        FetchedRows& rows) const;
  // Finds the inputs in `request.given`.
  absl::Status SetInputs(absl::Span<const NamedTensor> inputs, Workspace& workspace,
                         Request& request) const;
  static std::unique_ptr<const Model> Of(std::unique_ptr<LoadedModel> loaded);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_MODEL_H_
