// The family of sparse layers: embedding_layer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/hash_map.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/embedding/config.h"
#include "engine/embedding/pooling.h"
#include "engine/layers/types/families.h"

namespace ulfd::engine {
namespace {

// Bottoms of one feature.
constexpr absl::string_view kSuffixes[] = {".ids", ".values", ".segments"};
constexpr DType kDTypes[] = {DType::kInt64, DType::kFloat32, DType::kInt32};
constexpr int kIds = 0, kValues = 1, kSegments = 2, kPerFeature = 3;

// Where the columns of one item go.
struct Item {
  PoolingSpec pooling;
  int block = 0;
  int64_t column = 0;
};

// A feature that blocks read, with everything that is done to it: it is looked up once.
struct Feature {
  std::string name;
  int input = 0;  // Of its ids; values and segments follow.
  std::string table_name;
  int table = 0;  // ModelResources::TableRef::index.
  std::vector<Item> items;
};

struct Plan {
  std::vector<Feature> features;  // In the order of the bottoms.
  std::vector<int64_t> widths;    // Per block.
};

// Index into Plan::features by name.
using FeatureIndex = HashMap<std::string, size_t>;

// Unknown for a level that nothing states.
Dim RowsOf(Level level) {
  if (level == Level::kUser) return Dim::Users();
  return level == Level::kAd ? Dim::Ads() : Dim::Unknown();
}

std::string Named(const Feature& feature, int part) {
  return absl::StrCat("input \"", feature.name, kSuffixes[part], "\"");
}

// Scratch: the jobs, their outputs, and what PoolFeatures wants.
class EmbeddingKernel final : public Kernel {
 public:
  explicit EmbeddingKernel(Plan plan) : plan_(std::move(plan)) {
    for (const Feature& feature : plan_.features) outputs_ += feature.items.size();
  }

  size_t ScratchBytes(absl::Span<const Tensor> in) const override {
    int64_t ids = 0;
    for (const Feature& feature : plan_.features) ids += in[feature.input + kIds].elements();
    return plan_.features.size() * sizeof(FeatureJob) + outputs_ * sizeof(PoolingOutput) +
           static_cast<size_t>(ids) * kPoolingScratchBytes;
  }

  absl::Status Run(RunContext& ctx) const override {
    auto* jobs = static_cast<FeatureJob*>(ctx.scratch);
    auto* outputs = reinterpret_cast<PoolingOutput*>(jobs + plan_.features.size());
    size_t failed = 0;
    absl::Status status = MakeJobs(ctx, jobs, outputs, &failed);
    if (status.ok()) {
      status = PoolFeatures({jobs, plan_.features.size()}, outputs + outputs_, ctx.pace, &failed);
    }
    if (status.ok() || !ctx.pace.status().ok()) return status;
    return Annotate(status, "feature \"", plan_.features[failed].name, "\"");
  }

 private:
  static_assert(std::is_trivially_destructible_v<FeatureJob> &&
                std::is_trivially_destructible_v<PoolingOutput>);
  static_assert(alignof(PoolingOutput) <= alignof(FeatureJob) &&
                alignof(const float*) <= alignof(PoolingOutput));

  // Where the rows are, if the table has a tier.
  static const RowSet* FetchedOf(const RunContext& ctx, size_t table) {
    static const RowSet* const none = new RowSet();
    if (ctx.tables[table]->tier() == nullptr) return nullptr;
    return ctx.fetched == nullptr ? none : &ctx.fetched->tables[table];
  }

  // Writes one job per feature and its outputs, of which there are outputs_ in all.
  absl::Status MakeJobs(RunContext& ctx, FeatureJob* jobs, PoolingOutput* outputs,
                        size_t* failed) const {
    for (size_t f = 0; f < plan_.features.size(); ++f) {
      const Feature& feature = plan_.features[f];
      const Tensor* in = &ctx.in[feature.input];
      const FeatureInput input{
          .ids = {in[kIds].i64(), static_cast<size_t>(in[kIds].elements())},
          .values = in[kValues].f32(),
          .segments = {in[kSegments].i32(), static_cast<size_t>(in[kSegments].elements())}};
      *failed = f;
      RETURN_IF_ERROR(CheckSegments(input));
      const auto table = static_cast<size_t>(feature.table);
      ctx.counters->looked_up_ids[table] += static_cast<int64_t>(input.ids.size());
      new (&jobs[f]) FeatureJob{.table = ctx.tables[table].get(),
                                .input = input,
                                .outputs = {outputs, feature.items.size()},
                                .missing = &ctx.counters->missing_ids[table],
                                .fetched = FetchedOf(ctx, table)};
      for (const Item& item : feature.items) {
        // Without rows there may be no memory.
        float* out = input.segments.empty() ? nullptr : ctx.out[item.block].f32() + item.column;
        new (outputs++) PoolingOutput{.spec = item.pooling,
                                      .out = out,
                                      .stride = plan_.widths[static_cast<size_t>(item.block)]};
      }
    }
    return absl::OkStatus();
  }

  const Plan plan_;
  size_t outputs_ = 0;  // Items of all features.
};

// embedding_layer.  The inputs of each feature are ids [n], values [n] (null data: all 1) and
// segments [rows], ids per row; output b is block b of the configuration, [rows, columns of its
// items].  embedding_param.level: 1 one row (the user's), 0 one row per ad; left out, as in real
// exports: whatever the layers behind it and the request say.
class Embedding final : public Layer {
 public:
  static absl::StatusOr<std::unique_ptr<Layer>> Parse(const ParseContext& ctx);
  absl::StatusOr<TensorSpecs> Infer(absl::Span<const TensorSpec> in) const override;
  void SuggestInputs(absl::Span<TensorSpec> in) const override;
  Semantics semantics() const override { return {.op = Semantics::Op::kEmbedding}; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(absl::Span<const TensorSpec> in) const override {
    return std::make_unique<EmbeddingKernel>(plan_);
  }
  std::string Describe() const override;

 private:
  using Groups = HashMap<absl::string_view, const blaze::EmbeddingFeatureGroupConfig*>;

  Embedding(Level level, std::string conf) : level_(level), conf_(std::move(conf)) {}
  absl::Status AddFeatures(const ulf::LayerParameter& param, FeatureIndex& index);
  // `groups`: of the configuration, by feature.
  absl::Status AddBlock(const blaze::EmbeddingConfig& config, int b, bool trunc_all,
                        const Groups& groups, const FeatureIndex& index);
  absl::Status OpenTables(const Groups& groups, ModelResources& resources);
  void DropUnusedFeatures(Notices& notices);
  absl::Status CheckFeature(const Feature& feature, absl::Span<const TensorSpec> in) const;
  absl::Status AddRows(const Feature& feature, const TensorSpec& segments, TensorSpec& block) const;

  void SuggestFeature(absl::Span<TensorSpec> in) const;

  const Level level_;
  const std::string conf_;
  Plan plan_;
  std::vector<int> ignored_;  // First inputs of features that no block reads.
};

absl::StatusOr<std::unique_ptr<Layer>> Embedding::Parse(const ParseContext& ctx) {
  if (!ctx.param.has_embedding_param()) {
    return InvalidArgument("embedding_param is missing");
  }
  const ulf::EmbeddingParameter& param = ctx.param.embedding_param();
  if (param.level() != 0 && param.level() != 1) {
    return InvalidArgument("embedding_param.level ", param.level(), ", want 0 (ads) or 1 (user)");
  }
  const std::string& path = param.embedding_conf_path();
  ASSIGN_OR_RETURN(const blaze::EmbeddingConfig* config, ctx.resources.EmbeddingConf(path));
  RETURN_IF_ERROR(Annotate(ValidateEmbeddingConfig(*config), path));
  const int blocks = config->block_config_size();
  if (ctx.param.top_size() != blocks) {
    return InvalidArgument(ctx.param.top_size(), " tops, want ", blocks,
                           ", one per block_config of ", path);
  }
  std::unique_ptr<Embedding> layer(new Embedding(!param.has_level()   ? Level::kUnknown
                                                 : param.level() == 1 ? Level::kUser
                                                                      : Level::kAd,
                                                 path));
  FeatureIndex index;
  RETURN_IF_ERROR(layer->AddFeatures(ctx.param, index));
  Groups groups;
  for (const auto& group : config->feature_group_config()) {
    groups.emplace(group.feature_group(), &group);
  }
  for (int b = 0; b < blocks; ++b) {
    RETURN_IF_ERROR(Annotate(layer->AddBlock(*config, b, ctx.trunc_all, groups, index), path,
                             ": block_config[", b, "]"));
  }
  layer->DropUnusedFeatures(ctx.notices);
  RETURN_IF_ERROR(layer->OpenTables(groups, ctx.resources));
  return layer;
}

absl::Status Embedding::AddFeatures(const ulf::LayerParameter& param, FeatureIndex& index) {
  if (param.bottom_size() % kPerFeature != 0) {
    return InvalidArgument(param.bottom_size(),
                           " bottoms, want threes of <feature>.ids, .values, .segments");
  }
  for (int i = 0; i < param.bottom_size(); i += kPerFeature) {
    absl::string_view name = param.bottom(i);
    absl::ConsumeSuffix(&name, kSuffixes[kIds]);
    for (int part = 0; part < kPerFeature; ++part) {
      const std::string want = absl::StrCat(name, kSuffixes[part]);
      if (param.bottom(i + part) == want) continue;
      return InvalidArgument("bottom ", i + part, " is \"", param.bottom(i + part), "\", want \"",
                             want, "\"");
    }
    const auto [known, is_new] = index.emplace(name, plan_.features.size());
    if (!is_new) {
      return InvalidArgument("feature \"", name, "\" is given twice, by bottoms ",
                             plan_.features[known->second].input, " and ", i);
    }
    plan_.features.push_back(Feature{.name = std::string(name), .input = i});
  }
  return absl::OkStatus();
}

absl::Status Embedding::AddBlock(const blaze::EmbeddingConfig& config, int b, bool trunc_all,
                                 const Groups& groups, const FeatureIndex& index) {
  int64_t width = 0;
  for (const blaze::EmbeddingBlockConfigItem& item :
       config.block_config(b).embedding_block_config_item()) {
    const std::string& name = item.feature_group();
    const auto known = index.find(name);
    if (known == index.end()) {
      return InvalidArgument("feature \"", name, "\" has no bottoms in the layer, want \"", name,
                             ".ids\", \"", name, ".values\", \"", name, ".segments\"");
    }
    PoolingSpec pooling;
    pooling.pooling = static_cast<Pooling>(item.udf_type());
    pooling.dim = groups.at(name)->dim();  // Exists: the configuration has been validated.
    pooling.trunc_num = pooling.pooling == Pooling::kAssign || trunc_all ? item.trunc_num() : 0;
    pooling.keep_last = item.trunc_direction() == blaze::kReverse;
    plan_.features[known->second].items.push_back(Item{pooling, b, width});
    width += pooling.width();
  }
  if (config.block_config(b).embedding_block_config_item().empty()) {
    return InvalidArgument("has no items, want at least one");
  }
  plan_.widths.push_back(width);
  return absl::OkStatus();
}

void Embedding::DropUnusedFeatures(Notices& notices) {
  for (const Feature& feature : plan_.features) {
    if (!feature.items.empty()) continue;
    ignored_.push_back(feature.input);
    notices.push_back(
        absl::StrCat("feature \"", feature.name, "\" is in no block of ", conf_, ": ignored"));
  }
  plan_.features.erase(std::remove_if(plan_.features.begin(), plan_.features.end(),
                                      [](const Feature& f) { return f.items.empty(); }),
                       plan_.features.end());
}

absl::Status Embedding::OpenTables(const Groups& groups, ModelResources& resources) {
  for (Feature& feature : plan_.features) {
    const blaze::EmbeddingFeatureGroupConfig& group = *groups.at(feature.name);
    ASSIGN_OR_RETURN(const ModelResources::TableRef table, resources.Table(group.table_name()));
    feature.table = table.index;
    feature.table_name = group.table_name();
    const int64_t dim = table.table->dim();
    if (dim == group.dim()) continue;
    return InvalidArgument("table \"", group.table_name(), "\" has dim ", dim, ", want ",
                           group.dim(), " for feature \"", feature.name, "\" (", conf_, ")");
  }
  return absl::OkStatus();
}

absl::Status Embedding::CheckFeature(const Feature& feature,
                                     absl::Span<const TensorSpec> in) const {
  for (int part = 0; part < kPerFeature; ++part) {
    const TensorSpec& spec = in[static_cast<size_t>(feature.input) + static_cast<size_t>(part)];
    if (spec.dtype != kDTypes[part]) {
      return InvalidArgument(Named(feature, part), ": ", Name(spec.dtype), ", want ",
                             Name(kDTypes[part]));
    }
    if (spec.shape.ranked() && spec.shape.rank() != 1) {
      return InvalidArgument(Named(feature, part), ": shape ", spec.shape.ToString(),
                             ", want rank 1");
    }
  }
  const Shape& ids = in[static_cast<size_t>(feature.input) + kIds].shape;
  const Shape& values = in[static_cast<size_t>(feature.input) + kValues].shape;
  if (!ids.ranked() || !values.ranked() || CouldBeEqual(ids[0], values[0])) return absl::OkStatus();
  return InvalidArgument(Named(feature, kValues), ": shape ", values.ToString(), ", want ",
                         ids.ToString(), ", one value per id");
}

// Brings the rows of a feature into those of its block, which so far has the rows of the features
// before it.
absl::Status Embedding::AddRows(const Feature& feature, const TensorSpec& segments,
                                TensorSpec& block) const {
  const bool first = block.level == Level::kConstant;
  if (level_ == Level::kUnknown && first) {
    block.level = segments.level;
  } else if (segments.level < Level::kUnknown && segments.level > Level::kConstant &&
             segments.level != block.level) {
    // Stated otherwise elsewhere: the rows are then whatever the request says.
    block.level = Level::kUnknown;
    if (!block.shape[0].IsConst()) block.shape[0] = Dim::Unknown();
  }
  const Dim rows = segments.shape.ranked() ? segments.shape[0] : Dim::Unknown();
  if (!CouldBeEqual(rows, block.shape[0])) {
    return InvalidArgument(Named(feature, kSegments), ": ", rows.ToString(), " rows, want ",
                           block.shape[0].ToString(), ", those of the other features of its block");
  }
  if (block.shape[0].IsUnknown() || rows.IsConst()) block.shape[0] = rows;
  return absl::OkStatus();
}

absl::StatusOr<TensorSpecs> Embedding::Infer(absl::Span<const TensorSpec> in) const {
  TensorSpecs out;
  for (const int64_t width : plan_.widths) {
    // Constant: no feature yet.
    const Level level = level_ == Level::kUnknown ? Level::kConstant : level_;
    out.push_back(TensorSpec{DType::kFloat32, Shape({Dim::Unknown(), Dim::Of(width)}), level});
  }
  for (const Feature& feature : plan_.features) {
    RETURN_IF_ERROR(CheckFeature(feature, in));
    for (const Item& item : feature.items) {
      RETURN_IF_ERROR(AddRows(feature, in[static_cast<size_t>(feature.input + kSegments)],
                              out[static_cast<size_t>(item.block)]));
    }
  }
  for (TensorSpec& block : out) {
    if (block.level == Level::kConstant) block.level = Level::kUnknown;
    if (block.shape[0].IsUnknown() && block.level == level_) block.shape[0] = RowsOf(level_);
  }
  return out;
}

void Embedding::SuggestFeature(absl::Span<TensorSpec> in) const {
  for (int part = 0; part < kPerFeature; ++part) {
    TensorSpec& spec = in[static_cast<size_t>(part)];
    spec.dtype = kDTypes[part];
    if (!spec.shape.ranked()) {
      spec.shape = Shape({part == kSegments ? RowsOf(level_) : Dim::Unknown()});
    }
    if (spec.level == Level::kUnknown) spec.level = level_;
  }
}

void Embedding::SuggestInputs(absl::Span<TensorSpec> in) const {
  for (const Feature& feature : plan_.features) {
    SuggestFeature(in.subspan(static_cast<size_t>(feature.input)));
  }
  for (const int input : ignored_) SuggestFeature(in.subspan(static_cast<size_t>(input)));
}

std::string Embedding::Describe() const {
  std::string text = absl::StrCat("conf=", conf_, " level=", Name(level_), " columns=[",
                                  absl::StrJoin(plan_.widths, ", "), "]");
  for (const Feature& feature : plan_.features) {
    absl::StrAppend(&text, " ", feature.name, "=", feature.table_name);
  }
  return text;
}

constexpr LayerType kTypes[] = {
    {.name = "embedding_layer",
     .summary = "sparse features -> pooled rows of embedding tables, one output per block",
     .inputs = {3, Arity::kAny},
     .outputs = {1, Arity::kAny},
     .param_field = ulf::LayerParameter::kEmbeddingParamFieldNumber,
     .parse = &Embedding::Parse,
     .doc = {.formula = "rows of tables, pooled per feature: sum, avg or assign; features of a "
                        "block side by side",
             .inputs =
                 "per feature f: f.ids int64, f.values float32, f.segments int32 (ids per row)",
             .source = "ULF layer guide",
             .example_inputs = "f.ids;f.values;f.segments",
             .example_param = "embedding_param { embedding_conf_path: \"e.conf\" }",
             .example_files = "e.conf|feature_group_config { feature_group: \"f\" table_name: "
                              "\"t\" dim: 2 }\nblock_config { embedding_block_config_item { "
                              "feature_group: \"f\" udf_type: 0 } }\n|t|1,0.5,0.25\n2,1,-1\n"}},
};

}  // namespace

absl::Span<const LayerType> EmbeddingLayers() { return kTypes; }

}  // namespace ulfd::engine
