// embedding_layer from its text to its outputs: blocks of several features, every refusal, requests
// that lie.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/embedding/config.h"
#include "engine/layers/layer.h"
#include "engine/layers/registry.h"
#include "engine/weights/proto_file.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Configurations and tables from the test's own files, by the functions that a model uses.
class Files final : public ModelResources {
 public:
  absl::StatusOr<const blaze::EmbeddingConfig*> EmbeddingConf(const std::string& path) override {
    auto config = LoadEmbeddingConfig(dir.File(path));
    if (!config.ok()) return config.status();
    return &(configs_[path] = *std::move(config));
  }
  absl::StatusOr<TableRef> Table(const std::string& name) override {
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (tables_[i]->name() == name) return TableRef{tables_[i].get(), static_cast<int>(i)};
    }
    auto table = EmbeddingTable::LoadText(name, dir.File(name), options);
    if (!table.ok()) return table.status();
    tables_.push_back(*std::move(table));
    return TableRef{tables_.back().get(), static_cast<int>(tables_.size()) - 1};
  }

  const std::vector<std::shared_ptr<const EmbeddingTable>>& tables() const { return tables_; }

  TempDir dir;
  TableOptions options;

 private:
  std::map<std::string, blaze::EmbeddingConfig> configs_;
  std::vector<std::shared_ptr<const EmbeddingTable>> tables_;
};

// One feature of a request; no values: left out.
struct Input {
  std::vector<int64_t> ids;
  std::vector<float> values;
  std::vector<int32_t> segments;
};

class EmbeddingLayerTest : public ::testing::Test {
 protected:
  EmbeddingLayerTest() {
    files_.dir.Write("t", "7,1,2\n8,10,20\n-3,100,200\n9,1000,2000\n");
    files_.dir.Write("u", "0,5\n");
  }

  static std::string Group(const std::string& f, const std::string& table, int dim) {
    return absl::StrCat("feature_group_config { feature_group: '", f, "' table_name: '", table,
                        "' dim: ", dim, " }\n");
  }
  static std::string Block(const std::vector<std::string>& items) {
    std::string block = "block_config {\n";
    for (const std::string& item : items) {
      absl::StrAppend(&block, "  embedding_block_config_item { feature_group: ", item, " }\n");
    }
    return block + "}\n";
  }

  // A layer of these features with the configuration "e.conf".
  absl::StatusOr<Layer*> Parse(const std::string& config, const std::vector<std::string>& features,
                               int tops = 1, int level = 1, bool trunc_all = false) {
    std::vector<std::string> bottoms;
    for (const std::string& f : features) {
      for (const char* part : {".ids", ".values", ".segments"}) bottoms.push_back(f + part);
    }
    return ParseBottoms(config, bottoms, tops, level, trunc_all);
  }
  absl::StatusOr<Layer*> ParseBottoms(const std::string& config,
                                      const std::vector<std::string>& bottoms, int tops = 1,
                                      int level = 1, bool trunc_all = false) {
    files_.dir.Write("e.conf", config);
    param_.Clear();
    param_.set_type("embedding_layer");
    for (const std::string& bottom : bottoms) param_.add_bottom(bottom);
    for (int i = 0; i < tops; ++i) param_.add_top(absl::StrCat("y", i));
    param_.mutable_embedding_param()->set_embedding_conf_path("e.conf");
    param_.mutable_embedding_param()->set_level(level);
    notices_.clear();
    auto layer = ParseLayer(ParseContext{.param = param_,
                                         .weights = {},
                                         .resources = files_,
                                         .notices = notices_,
                                         .trunc_all = trunc_all});
    if (!layer.ok()) return layer.status();
    layer_ = *std::move(layer);
    return layer_.get();
  }
  std::string ParseError(const std::string& config, const std::vector<std::string>& features,
                         int tops = 1, int level = 1) {
    std::string text(Parse(config, features, tops, level).status().message());
    const size_t path = text.find(files_.dir.path());
    return path == std::string::npos ? text : text.erase(path, files_.dir.path().size() + 1);
  }

  // Infers with the concrete shapes of a request and runs; the values of every output.
  absl::StatusOr<std::vector<std::vector<float>>> Run(const std::vector<Input>& inputs) {
    std::vector<Tensor> in;
    std::vector<TensorSpec> specs;
    const auto add = [&](DType dtype, size_t n, const void* data) {
      in.push_back(Tensor{dtype, {static_cast<int64_t>(n)}, const_cast<void*>(data)});
      specs.push_back(TensorSpec{dtype, Shape::Of({static_cast<int64_t>(n)}), Level::kUser});
    };
    for (const Input& input : inputs) {
      const bool ones = input.values.empty();
      add(DType::kInt64, input.ids.size(), input.ids.data());
      add(DType::kFloat32, ones ? input.ids.size() : input.values.size(),
          ones ? nullptr : input.values.data());
      add(DType::kInt32, input.segments.size(), input.segments.data());
    }
    const auto inferred = layer_->Infer(specs);
    if (!inferred.ok()) return inferred.status();
    const auto kernel = layer_->Prepare(specs);
    if (!kernel.ok()) return kernel.status();
    std::vector<std::vector<float>> values;
    std::vector<Tensor> out;
    for (const TensorSpec& spec : *inferred) {
      EXPECT_TRUE(spec.shape.IsConcrete()) << spec.shape.ToString();
      values.emplace_back(static_cast<size_t>(spec.shape.Elements().value()), -99.0f);
      out.push_back(Tensor{
          DType::kFloat32, {spec.shape[0].value(), spec.shape[1].value()}, values.back().data()});
    }
    std::vector<uint64_t> scratch((*kernel)->ScratchBytes(in) / sizeof(uint64_t) + 1);
    counters_.looked_up_ids.assign(2, 0);
    counters_.missing_ids.assign(2, 0);
    RunContext ctx{in, absl::MakeSpan(out), scratch.data(), &counters_, files_.tables()};
    const absl::Status status = (*kernel)->Run(ctx);
    if (!status.ok()) return status;
    return values;
  }
  std::string RunError(const std::vector<Input>& inputs) {
    return std::string(Run(inputs).status().message());
  }

  Files files_;
  ulf::LayerParameter param_;
  Notices notices_;
  std::unique_ptr<Layer> layer_;
  RunCounters counters_;
};

// 99 is in no table.
const Input kIds{{7, 8, 99, 7, -3, 9, 8}, {1, 2, 3, 0.5f, 1, 1, -1}, {3, 0, 4}};

TEST_F(EmbeddingLayerTest, PoolsAsConfigured) {
  const std::string group = Group("f", "t", 2);
  const auto run = [&](const std::string& item) {
    EXPECT_TRUE(Parse(group + Block({item}), {"f"}).ok());
    return (*Run({kIds}))[0];
  };
  EXPECT_THAT(run("'f'"), ElementsAre(21, 42, 0, 0, 1090.5f, 2181));
  EXPECT_EQ(counters_.looked_up_ids[0], 7);
  EXPECT_EQ(counters_.missing_ids[0], 1);
  EXPECT_THAT(run("'f' udf_type: 1"), ElementsAre(7, 14, 0, 0, 1090.5f / 4, 2181 / 4.0f));
  EXPECT_THAT(run("'f' udf_type: 2 trunc_num: 3"),
              ElementsAre(1, 2, 20, 40, 0, 0, 0, 0, 0, 0, 0, 0, 100, 200, 1000, 2000, -10, -20));
  EXPECT_THAT(run("'f' udf_type: 2 trunc_num: 3 trunc_direction: kInorder"),
              ElementsAre(1, 2, 20, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0.5f, 1, 100, 200, 1000, 2000));
  EXPECT_THAT(run("'f' udf_type: 2"), IsEmpty());  // No slots: [3, 0].
  EXPECT_THAT(run("'f' trunc_num: 1"), ElementsAre(21, 42, 0, 0, 1090.5f, 2181));
}

TEST_F(EmbeddingLayerTest, TruncAllTruncatesSums) {
  ASSERT_TRUE(
      Parse(Group("f", "t", 2) + Block({"'f' trunc_num: 1"}), {"f"}, 1, 1, /*trunc_all=*/true)
          .ok());
  EXPECT_THAT((*Run({kIds}))[0], ElementsAre(0, 0, 0, 0, -10, -20));
}

TEST_F(EmbeddingLayerTest, AFeatureMayBeInSeveralItemsAndBlocks) {
  const std::string config = Group("g", "u", 1) + Group("a.f", "t", 2) +
                             Block({"'g' udf_type: 1", "'a.f' udf_type: 2 trunc_num: 1", "'a.f'"}) +
                             Block({"'a.f'"});
  ASSERT_TRUE(Parse(config, {"a.f", "g"}, 2).ok());
  const auto out = Run({kIds, {{0, 1, 0}, {}, {1, 2, 0}}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT((*out)[0],
              ElementsAre(5, 0, 0, 21, 42, 2.5f, 0, 0, 0, 0, 0, -10, -20, 1090.5f, 2181));
  EXPECT_THAT((*out)[1], ElementsAre(21, 42, 0, 0, 1090.5f, 2181));
  // Looked up once, however many items read it; counted under each table.
  EXPECT_THAT(counters_.missing_ids, ElementsAre(1, 1));
  EXPECT_EQ(layer_->Describe(), "conf=e.conf level=user columns=[5, 2] a.f=t g=u");
}

TEST_F(EmbeddingLayerTest, WithoutValuesAllAreOne) {
  ASSERT_TRUE(Parse(Group("f", "t", 2) + Block({"'f'"}), {"f"}).ok());
  EXPECT_THAT((*Run({{{7, 8}, {}, {2}}}))[0], ElementsAre(11, 22));
}

TEST_F(EmbeddingLayerTest, NoRowsAndNoIds) {
  ASSERT_TRUE(Parse(Group("f", "t", 2) + Block({"'f'", "'f'"}), {"f"}).ok());
  EXPECT_THAT((*Run({{{}, {}, {}}}))[0], IsEmpty());
  EXPECT_THAT((*Run({{{}, {}, {0}}}))[0], ElementsAre(0, 0, 0, 0));
}

TEST_F(EmbeddingLayerTest, AFeatureInNoBlockIsIgnoredWithANotice) {
  ASSERT_TRUE(
      Parse(Group("f", "t", 2) + Group("g", "nowhere", 3) + Block({"'f'"}), {"g", "f"}).ok());
  EXPECT_THAT(notices_, ElementsAre("feature \"g\" is in no block of e.conf: ignored"));
  // Nothing of it is looked at: neither its table nor its segments.
  EXPECT_THAT((*Run({{{1}, {}, {5, -1}}, {{7}, {}, {1}}}))[0], ElementsAre(1, 2));
}

TEST_F(EmbeddingLayerTest, InfersRowsAndLevels) {
  const std::string config = Group("f", "t", 2) + Group("g", "u", 1) + Block({"'f'", "'g'"});
  for (const int level : {0, 1}) {
    ASSERT_TRUE(Parse(config, {"f", "g"}, 1, level).ok());
    std::vector<TensorSpec> in(6);
    for (TensorSpec& spec : in) spec.level = Level::kUnknown;
    layer_->SuggestInputs(absl::MakeSpan(in));
    const Level want = level == 1 ? Level::kUser : Level::kAd;
    const Dim rows = level == 1 ? Dim::Users() : Dim::Ads();
    EXPECT_EQ(in[3].dtype, DType::kInt64);
    EXPECT_EQ(in[4].dtype, DType::kFloat32);
    EXPECT_EQ(in[5].dtype, DType::kInt32);
    EXPECT_EQ(in[3].shape, Shape({Dim::Unknown()}));
    EXPECT_EQ(in[5].shape, Shape({rows}));
    EXPECT_EQ(in[5].level, want);
    const auto out = layer_->Infer(in);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ((*out)[0].shape, Shape({rows, Dim::Of(3)}));
    EXPECT_EQ((*out)[0].level, want);
  }
  // Segments of which nothing is known have the rows that the layer states.
  std::vector<TensorSpec> in(6);
  in[0].dtype = in[3].dtype = DType::kInt64;
  in[2].dtype = in[5].dtype = DType::kInt32;
  for (TensorSpec& spec : in) spec.shape = Shape({Dim::Unknown()});
  EXPECT_EQ((*layer_->Infer(in))[0].shape, Shape({Dim::Users(), Dim::Of(3)}));
  // A feature that is another layer's ad feature proves nothing.
  in[5].shape = Shape({Dim::Ads()});
  in[5].level = Level::kAd;
  EXPECT_EQ((*layer_->Infer(in))[0].level, Level::kUnknown);
}

TEST_F(EmbeddingLayerTest, RefusesInputsOfOtherTypesAndShapes) {
  ASSERT_TRUE(
      Parse(Group("f", "t", 2) + Group("g", "u", 1) + Block({"'f'", "'g'"}), {"f", "g"}).ok());
  std::vector<TensorSpec> good(6);
  layer_->SuggestInputs(absl::MakeSpan(good));
  for (TensorSpec& spec : good) spec.shape = Shape::Of({4});
  ASSERT_TRUE(layer_->Infer(good).ok());
  const auto error = [&](size_t i, DType dtype, const Shape& shape) {
    std::vector<TensorSpec> in = good;
    in[i].dtype = dtype;
    in[i].shape = shape;
    return std::string(layer_->Infer(in).status().message());
  };
  EXPECT_EQ(error(0, DType::kInt32, Shape::Of({4})), "input \"f.ids\": int32, want int64");
  EXPECT_EQ(error(4, DType::kInt64, Shape::Of({4})), "input \"g.values\": int64, want float32");
  EXPECT_EQ(error(2, DType::kInt64, Shape::Of({4})), "input \"f.segments\": int64, want int32");
  EXPECT_EQ(error(3, DType::kInt64, Shape::Of({1, 4})),
            "input \"g.ids\": shape [1, 4], want rank 1");
  EXPECT_EQ(error(1, DType::kFloat32, Shape::Of({5})),
            "input \"f.values\": shape [5], want [4], one value per id");
  EXPECT_EQ(error(5, DType::kInt32, Shape::Of({3})),
            "input \"g.segments\": 3 rows, want 4, those of the other features of its block");
}

TEST_F(EmbeddingLayerTest, RefusesRequestsThatDoNotAddUp) {
  ASSERT_TRUE(Parse(Group("f", "t", 2) + Block({"'f'"}), {"f"}).ok());
  EXPECT_EQ(RunError({{{7, 8}, {}, {1}}}),
            "feature \"f\": segments sum to 1, want 2, the number of ids");
  EXPECT_EQ(RunError({{{7, 8}, {}, {1000000, 1}}}),
            "feature \"f\": segments sum to 1000001, want 2, the number of ids");
  EXPECT_EQ(RunError({{{7, 8}, {}, {3, -1}}}), "feature \"f\": segments[1] is -1, want at least 0");
  EXPECT_EQ(Run({{{7}, {}, {2}}}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EmbeddingLayerTest, ATableMayRefuseUnknownIds) {
  files_.options.missing_keys = MissingKeys::kError;
  ASSERT_TRUE(Parse(Group("f", "t", 2) + Block({"'f'"}), {"f"}).ok());
  EXPECT_EQ(RunError({kIds}), "feature \"f\": id 99 is not in table \"t\"");
}

TEST_F(EmbeddingLayerTest, RefusesBottomsThatAreNoFeatures) {
  const std::string config = Group("f", "t", 2) + Block({"'f'"});
  const auto error = [&](const std::vector<std::string>& bottoms) {
    return std::string(ParseBottoms(config, bottoms).status().message());
  };
  EXPECT_EQ(error({"f.ids", "f.values", "f.segments", "g.ids"}),
            "4 bottoms, want threes of <feature>.ids, .values, .segments");
  EXPECT_EQ(error({"f.ids", "f.segments", "f.values"}),
            "bottom 1 is \"f.segments\", want \"f.values\"");
  EXPECT_EQ(error({"f", "f.values", "f.segments"}), "bottom 0 is \"f\", want \"f.ids\"");
  EXPECT_EQ(ParseError(config, {"f", "f"}), "feature \"f\" is given twice, by bottoms 0 and 3");
}

TEST_F(EmbeddingLayerTest, RefusesConfigurationsThatDoNotFit) {
  const std::string group = Group("f", "t", 2);
  EXPECT_EQ(ParseError(group + Block({"'f'"}), {"f"}, 2),
            "2 tops, want 1, one per block_config of e.conf");
  EXPECT_EQ(ParseError(group + Block({"'f'"}), {"f"}, 1, 2),
            "embedding_param.level 2, want 0 (ads) or 1 (user)");
  EXPECT_EQ(ParseError(group + Group("g", "t", 2) + Block({"'f'", "'g'"}), {"f"}),
            "e.conf: block_config[0]: feature \"g\" has no bottoms in the layer, want \"g.ids\", "
            "\"g.values\", \"g.segments\"");
  EXPECT_EQ(ParseError(group + Block({}), {"f"}),
            "e.conf: block_config[0]: has no items, want at least one");
  EXPECT_EQ(ParseError(group + Block({"'f' udf_type: 7"}), {"f"}),
            "e.conf: block_config[0] item 0 (feature \"f\"): udf_type 7, want 0 (sum), 1 (avg) or "
            "2 (assign)");
  EXPECT_EQ(ParseError(Group("f", "t", 1) + Block({"'f'"}), {"f"}),
            "table \"t\" has dim 2, want 1 for feature \"f\" (e.conf)");
  EXPECT_EQ(Parse(Group("f", "none", 2) + Block({"'f'"}), {"f"}).status().code(),
            absl::StatusCode::kNotFound);
  param_.Clear();
  param_.set_type("embedding_layer");
  for (const char* bottom : {"f.ids", "f.values", "f.segments"}) param_.add_bottom(bottom);
  param_.add_top("y");
  EXPECT_EQ(ParseLayer(ParseContext{.param = param_, .resources = files_, .notices = notices_})
                .status()
                .message(),
            "embedding_param is missing");
}

}  // namespace
}  // namespace ulfd::engine
