// OpenModelDirectory, ReadEmbeddingConfs, InspectDirectory, FingerprintDirectory, load reasons.
// SPDX-License-Identifier: Apache-2.0
#include "engine/directory/model_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/directory/load_reason.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kGraph[] = R"(
layer_params { type: "input_layer" top: "a.ids" top: "a.values" top: "a.segments" }
layer_params {
  name: "emb" type: "embedding_layer" bottom: "a.ids" bottom: "a.values" bottom: "a.segments" top: "x"
  embedding_param { embedding_conf_path: "ad.conf" }
}
layer_params { name: "fc" type: "inner_product_layer" bottom: "x" top: "y" }
)";
constexpr char kConf[] = R"(
feature_group_config { feature_group: "a" table_name: "items" dim: 4 }
feature_group_config { feature_group: "b" table_name: "items" dim: 4 }
feature_group_config { feature_group: "c" table_name: "cats" dim: 4 }
)";

class ModelDirectoryTest : public ::testing::Test {
 protected:
  ModelDirectoryTest() { fs::create_directory(dir_); }

  void Write(const std::string& name, absl::string_view content) {
    fs::create_directories(fs::path(absl::StrCat(dir_, "/", name)).parent_path());
    std::ofstream(absl::StrCat(dir_, "/", name), std::ios::binary) << content;
  }
  void WriteWhole() {
    Write("graph_ulf.txt", kGraph);
    Write("weights.pb", "");
    Write("ad.conf", kConf);
    Write("items", "1,0,0,0,0\n");
    Write("cats", "1,0,0,0,0\n");
  }
  std::string OpenError() { return std::string(OpenModelDirectory(dir_).status().message()); }
  std::string Missing() {
    const auto state = InspectDirectory(dir_);
    if (!state.ok()) return state.status().ToString();
    EXPECT_EQ(state->complete, state->missing.empty());
    return state->missing;
  }

  const TempDir temp_;
  const std::string root_ = temp_.path(), dir_ = root_ + "/1";
};

TEST_F(ModelDirectoryTest, FindsTheFilesOfAPlainExport) {
  WriteWhole();
  const auto directory = OpenModelDirectory(dir_ + "//");
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(directory->path, dir_);
  EXPECT_EQ(directory->graph_path, dir_ + "/graph_ulf.txt");
  EXPECT_EQ(directory->weights_path, dir_ + "/weights.pb");
  const auto net = ReadGraph(*directory);
  ASSERT_TRUE(net.ok()) << net.status();
  const auto confs = ReadEmbeddingConfs(*directory, *net);
  ASSERT_TRUE(confs.ok()) << confs.status();
  ASSERT_EQ(confs->size(), 1u);
  EXPECT_EQ((*confs)[0].name, "ad.conf");
  ASSERT_EQ((*confs)[0].tables.size(), 2u);
  EXPECT_EQ((*confs)[0].tables[0].name, "items");
  EXPECT_EQ((*confs)[0].tables[1].path, dir_ + "/cats");
}

TEST_F(ModelDirectoryTest, EveryDefaultNameIsFound) {
  for (const char* graph : {"graph_ulf.txt", "net-parameter-conf", "rank.ulf"}) {
    for (const char* weights : {"weights.pb", "dnn-model-dat", "dense.npz", "dense.txt"}) {
      fs::remove_all(dir_);
      Write(graph, kGraph);
      Write(weights, "");
      const auto directory = OpenModelDirectory(dir_);
      ASSERT_TRUE(directory.ok()) << directory.status();
      EXPECT_EQ(directory->graph_path, absl::StrCat(dir_, "/", graph));
      EXPECT_EQ(directory->weights_path, absl::StrCat(dir_, "/", weights));
    }
  }
}

TEST_F(ModelDirectoryTest, WeightsAreOptional) {
  Write("graph_ulf.txt", "layer_params { type: \"input_layer\" top: \"x\" }");
  const auto directory = OpenModelDirectory(dir_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(directory->weights_path, "");
  EXPECT_EQ(Missing(), "");
}

TEST_F(ModelDirectoryTest, TwoCandidatesNeedAManifest) {
  WriteWhole();
  Write("b.ulf", kGraph);
  EXPECT_EQ(OpenError(), absl::StrCat(dir_,
                                      " holds 2 files that may be the graph: b.ulf, "
                                      "graph_ulf.txt; want one, or `graph: \"...\"` in "
                                      "model.textproto"));
  Write("model.textproto", "graph: \"b.ulf\"");
  EXPECT_EQ(OpenModelDirectory(dir_)->graph_path, dir_ + "/b.ulf");
  Write("dense.npz", "");
  EXPECT_EQ(OpenError(), absl::StrCat(dir_,
                                      " holds 2 files that may be the weights: dense.npz, "
                                      "weights.pb; want one, or `weights: \"...\"` in "
                                      "model.textproto"));
  Write("model.textproto", "graph: \"b.ulf\" weights: \"dense.npz\"");
  EXPECT_EQ(OpenModelDirectory(dir_)->weights_path, dir_ + "/dense.npz");
}

TEST_F(ModelDirectoryTest, NoGraphNoDirectory) {
  EXPECT_EQ(OpenError(), absl::StrCat("graph: none of graph_ulf.txt, net-parameter-conf, *.ulf "
                                      "exists in ",
                                      dir_));
  Write("model.onnx", "");
  EXPECT_THAT(OpenError(), HasSubstr("1; `ulf convert onnx` makes one of model.onnx"));
  EXPECT_TRUE(absl::IsNotFound(OpenModelDirectory(root_ + "/2").status()));
  EXPECT_TRUE(absl::IsNotFound(InspectDirectory(root_ + "/2").status()));
  Write("graph_ulf.txt", "");
  EXPECT_EQ(ReadGraph(*OpenModelDirectory(dir_)).status().message(),
            absl::StrCat(dir_, "/graph_ulf.txt: the graph has no layers"));
  EXPECT_EQ(LoadReasonOf(ReadGraph(*OpenModelDirectory(dir_)).status()), LoadReason::kParse);
}

TEST_F(ModelDirectoryTest, ManifestErrorsSayWhere) {
  WriteWhole();
  const std::string manifest = dir_ + "/model.textproto";
  Write("model.textproto", "trunc_all: true\n  grahp: \"x\"\n");
  EXPECT_THAT(OpenError(), HasSubstr(manifest + ":2:"));
  EXPECT_THAT(OpenError(), HasSubstr("grahp"));
  EXPECT_EQ(LoadReasonOf(OpenModelDirectory(dir_).status()), LoadReason::kManifest);
  const auto error = [&](const std::string& text) {
    Write("model.textproto", text);
    const std::string message = OpenError();
    EXPECT_EQ(message.rfind(manifest + ": ", 0), 0u) << message;
    return message.substr(std::min(message.size(), manifest.size() + 2));
  };
  EXPECT_EQ(error("graph: \"../2/graph_ulf.txt\""),
            absl::StrCat("graph: \"../2/graph_ulf.txt\" leaves ", dir_));
  EXPECT_EQ(
      error("graph: \"/etc/passwd\""),
      absl::StrCat("graph: \"/etc/passwd\" is an absolute path, want one relative to ", dir_));
  EXPECT_EQ(error("weights: \"none.npz\""),
            absl::StrCat("weights: ", dir_, "/none.npz does not exist"));
  EXPECT_EQ(error("outputs: \"y\" outputs: \"y\""), "outputs: \"y\" is given twice");
  EXPECT_EQ(error("tables { missing_keys: MISSING_KEY_POLICY_ERROR }"), "tables.name: empty");
  EXPECT_EQ(error("inputs { name: \"m\" row_shape: 0 }"),
            "inputs \"m\": row_shape holds 0, want positive dimensions");
  EXPECT_EQ(error("inputs { name: \"m\" row_shape: [4611686018427387904, 4] }"),
            "inputs \"m\": row_shape: shape [4611686018427387904, 4] is not possible: more than "
            "1099511627776 elements");
  for (const char* below : {"-1", "16777217"}) {
    EXPECT_EQ(error(absl::StrCat("inputs { name: \"m\" integers_below: ", below, " }")),
              absl::StrCat("inputs \"m\": integers_below is ", below, ", want 0 to 16777216"));
  }
  EXPECT_EQ(error("inputs { name: \"m\" int64: true integers_below: 9007199254740993 }"),
            "inputs \"m\": integers_below is 9007199254740993, want 0 to 9007199254740992");
  EXPECT_EQ(error("user_cache_bytes: 9223372036854775807"),
            "user_cache_bytes is 9223372036854775807, want 0 to 1099511627776");
  EXPECT_EQ(error("tables { name: \"t\" store { rocksdb: \"d\" fetch_timeout_ms: -1 } }"),
            "tables \"t\": store: fetch_timeout_ms is -1, want 0 to 1099511627776");
  EXPECT_EQ(error("features { name: \"a\" } features { name: \"a\" }"),
            "features.name: \"a\" is given twice");
  EXPECT_EQ(error("features { name: \"a\" max_ids_per_row: -1 }"),
            "features \"a\": max_ids_per_row is -1, want 0 to 2147483647");
  EXPECT_EQ(error("tables { name: \"t\" default_id: 9 }"),
            "tables \"t\": default_id without missing_keys: MISSING_KEY_POLICY_DEFAULT_ROW");
  EXPECT_EQ(error("layer_precision { precision: PRECISION_INT8 }"),
            "layer_precision names no layers");
  for (const char* rounded :
       {"precision: PRECISION_INT8",
        "precision: PRECISION_FP32 layer_precision { layers: \"l\" precision: PRECISION_AUTO }"}) {
    EXPECT_EQ(error(absl::StrCat("exact: true ", rounded)),
              "exact beside a precision other than PRECISION_FP32, want one of them");
  }
  EXPECT_EQ(error("sums { path: \"items\" sha256: \"AB\" }"),
            "sums \"items\": sha256 is \"AB\", want 64 lower-case hexadecimal digits");
  EXPECT_EQ(error("sums { path: \"a/../../x\" }"),
            absl::StrCat("sums.path: \"a/../../x\" leaves ", dir_));
}

TEST_F(ModelDirectoryTest, PathsAreRelativeToTheGraphAndStayInside) {
  Write("sub/graph.txt", kGraph);
  Write("sub/ad.conf", kConf);
  Write("model.textproto", "graph: \"sub/graph.txt\"");
  auto directory = OpenModelDirectory(dir_);
  ASSERT_TRUE(directory.ok()) << directory.status();
  auto net = *ReadGraph(*directory);
  EXPECT_EQ((*ReadEmbeddingConfs(*directory, net))[0].tables[0].path, dir_ + "/sub/items");

  // Up to the version directory, but not beyond.
  Write("ad.conf", kConf);
  net.mutable_layer_params(1)->mutable_embedding_param()->set_embedding_conf_path("../ad.conf");
  EXPECT_TRUE(ReadEmbeddingConfs(*directory, net).ok());
  net.mutable_layer_params(1)->mutable_embedding_param()->set_embedding_conf_path("../../ad.conf");
  EXPECT_EQ(ReadEmbeddingConfs(*directory, net).status().message(),
            absl::StrCat(dir_,
                         "/sub/graph.txt: layer 1 \"emb\" (embedding_layer): "
                         "embedding_conf_path: \"../../ad.conf\" leaves ",
                         dir_));
  Write("sub/ad.conf", "feature_group_config { feature_group: \"a\" table_name: \"/t\" }");
  EXPECT_THAT(
      std::string(ReadEmbeddingConfs(*directory, *ReadGraph(*directory)).status().message()),
      HasSubstr("feature_group \"a\": table_name: \"/t\" is an absolute path"));
}

TEST_F(ModelDirectoryTest, InspectNamesWhatIsMissing) {
  EXPECT_THAT(Missing(), HasSubstr("graph: none of"));
  Write("graph_ulf.txt", absl::string_view(kGraph).substr(0, 200));  // Half-written.
  EXPECT_THAT(Missing(), HasSubstr(dir_ + "/graph_ulf.txt:"));
  Write("graph_ulf.txt", kGraph);
  EXPECT_EQ(Missing(), absl::StrCat("weights: none of weights.pb, dnn-model-dat, dense.npz, "
                                    "dense.txt exists in ",
                                    dir_));
  Write("weights.pb", "");
  EXPECT_EQ(Missing(), absl::StrCat(dir_,
                                    "/graph_ulf.txt: layer 1 \"emb\" (embedding_layer): "
                                    "embedding_conf_path: ",
                                    dir_, "/ad.conf does not exist"));
  Write("ad.conf", kConf);
  Write("items", "");
  EXPECT_EQ(Missing(),
            absl::StrCat(dir_, "/ad.conf: table \"cats\": ", dir_, "/cats does not exist"));
  Write("cats", "");
  EXPECT_EQ(Missing(), "");
  Write("model.textproto",
        absl::StrCat("sums { path: \"more\" sha256: \"", std::string(64, '0'), "\" }"));
  EXPECT_THAT(Missing(), HasSubstr("/more does not exist"));
}

TEST_F(ModelDirectoryTest, SuccessMarksCompleteUnread) {
  Write("graph_ulf.txt", "no graph at all");
  EXPECT_FALSE(InspectDirectory(dir_)->complete);
  Write("_SUCCESS", "");
  const auto state = InspectDirectory(dir_);
  EXPECT_TRUE(state->has_success);
  EXPECT_TRUE(state->complete);
}

TEST_F(ModelDirectoryTest, FingerprintSeesEveryChange) {
  WriteWhole();
  std::string last = FingerprintDirectory(dir_)->fingerprint;
  EXPECT_EQ(FingerprintDirectory(dir_)->fingerprint, last);
  EXPECT_EQ(InspectDirectory(dir_)->fingerprint, last);
  const auto changed = [&] {
    const std::string now = FingerprintDirectory(dir_)->fingerprint;
    const bool differs = now != last;
    last = now;
    return differs;
  };
  Write("items", "2,0,0,0,0\n2,0,0,0,0\n");
  EXPECT_TRUE(changed()) << "size";
  timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000, .tv_nsec = 1}};
  ASSERT_EQ(utimensat(AT_FDCWD, (dir_ + "/items").c_str(), times, 0), 0);
  EXPECT_TRUE(changed()) << "modification time";
  times[1].tv_nsec = 2;
  ASSERT_EQ(utimensat(AT_FDCWD, (dir_ + "/items").c_str(), times, 0), 0);
  EXPECT_TRUE(changed()) << "one nanosecond";
  fs::copy_file(dir_ + "/items", dir_ + "/items.new");
  EXPECT_TRUE(changed()) << "new file";
  ASSERT_EQ(utimensat(AT_FDCWD, (dir_ + "/items.new").c_str(), times, 0), 0);
  changed();
  fs::rename(dir_ + "/items.new", dir_ + "/items");
  EXPECT_TRUE(changed()) << "inode";
  Write("warmup/1.pb", "x");
  EXPECT_TRUE(changed()) << "below";
  fs::create_symlink("later", dir_ + "/link");
  EXPECT_TRUE(changed()) << "dangling link";
  Write("later", "");
  EXPECT_TRUE(changed()) << "link filled";
  fs::create_directory_symlink(".", dir_ + "/circle");
  EXPECT_FALSE(changed()) << "a circle ends";
  EXPECT_FALSE(changed());
}

TEST_F(ModelDirectoryTest, FingerprintTellsASwappedDirectory) {
  WriteWhole();
  const auto before = *FingerprintDirectory(dir_);
  EXPECT_GT(before.newest_change.time_since_epoch().count(), 0);
  fs::rename(dir_, root_ + "/old");
  WriteWhole();
  const auto after = *FingerprintDirectory(dir_);
  EXPECT_NE(after.inode, before.inode);
  EXPECT_NE(after.fingerprint, before.fingerprint);
  EXPECT_EQ(FingerprintDirectory(root_ + "/old")->fingerprint, before.fingerprint);
}

TEST_F(ModelDirectoryTest, GraphsHaveABoundedSize) {
  const auto error = [&](const std::string& graph) {
    Write("graph_ulf.txt", graph);
    const absl::Status status = ReadGraph(*OpenModelDirectory(dir_)).status();
    EXPECT_EQ(LoadReasonOf(status), LoadReason::kParse) << status;
    return std::string(status.message());
  };
  const auto repeat = [](const char* text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  EXPECT_THAT(error(repeat("layer_params { } ", 20001)), HasSubstr("20001 layers, want at most"));
  EXPECT_THAT(error(absl::StrCat("layer_params { ", repeat("bottom: 'x' ", 200001), "}")),
              HasSubstr("200001 bottoms and tops in all, want at most 200000"));
  for (const char* field : {"name", "type", "top", "bottom", "arg_names"}) {
    const std::string text =
        error(absl::StrCat("layer_params { ", field, ": '", std::string(2000, 'n'), "' }"));
    EXPECT_THAT(text, HasSubstr("layer 0: "));
    EXPECT_THAT(text, HasSubstr("of 2000 bytes, want at most 1024: \"nnn"));
    EXPECT_LT(text.size(), 300u);
  }
  EXPECT_THAT(error(absl::StrCat("layer_params ", std::string(1000000, '['))),
              HasSubstr("Expected \"{\", found \"[\""));
}

TEST_F(ModelDirectoryTest, LinksOutOfTheRootsAreNotFollowed) {
  WriteWhole();
  fs::create_directories(root_ + "/outside/deep");
  std::ofstream(root_ + "/outside/deep/file") << "x";
  const DirectoryRules rules{.roots = {*ResolvePath(dir_)}};
  const std::string before = FingerprintDirectory(dir_, rules)->fingerprint;
  fs::create_directory_symlink(root_ + "/outside", dir_ + "/folder");
  fs::create_symlink(root_ + "/outside/deep/file", dir_ + "/link");
  const std::string linked = FingerprintDirectory(dir_, rules)->fingerprint;
  EXPECT_NE(linked, before);
  EXPECT_EQ(linked.size(), 32u) << "however many files there are";
  std::ofstream(root_ + "/outside/deep/file") << "changed";
  EXPECT_EQ(FingerprintDirectory(dir_, rules)->fingerprint, linked) << "not looked at";
  const std::string followed = FingerprintDirectory(dir_)->fingerprint;
  EXPECT_NE(followed, linked);
  std::ofstream(root_ + "/outside/deep/file") << "changed again";
  EXPECT_NE(FingerprintDirectory(dir_)->fingerprint, followed);
}

TEST_F(ModelDirectoryTest, TreesThatBreakTheRulesAreAFault) {
  WriteWhole();
  const DirectoryRules rules{.max_files = 12, .max_depth = 3};
  EXPECT_TRUE(FingerprintDirectory(dir_, rules)->fault.ok());
  fs::create_directories(dir_ + "/1/2/3");
  EXPECT_TRUE(FingerprintDirectory(dir_, rules)->fault.ok());
  fs::create_directories(dir_ + "/1/2/3/4");
  auto state = *InspectDirectory(dir_, rules);
  EXPECT_EQ(state.fault.ToString(),
            absl::StrCat("FAILED_PRECONDITION: ", dir_, ": directories more than 3 deep"));
  fs::remove_all(dir_ + "/1");
  EXPECT_NE(FingerprintDirectory(dir_, rules)->fingerprint, state.fingerprint);
  for (int i = 0; i < 20; ++i) Write(absl::StrCat("file", i), "");
  state = *InspectDirectory(dir_, rules);
  EXPECT_EQ(state.fault.ToString(), absl::StrCat("FAILED_PRECONDITION: ", dir_,
                                                 ": holds more than 12 files (load.max_files)"));
  // As long as there are too many, it does not matter which.
  Write("file20", "");
  EXPECT_EQ(FingerprintDirectory(dir_, rules)->fingerprint, state.fingerprint);
}

TEST_F(ModelDirectoryTest, SharedExportsAreComplete) {
  for (const char* model : {"din", "tdm_dnn"}) {
    const std::string path = absl::StrCat(::ulfd::testing::SharedDir(), "/models/", model, "/1");
    if (!fs::exists(path)) GTEST_SKIP() << path << " is not here";
    const auto state = InspectDirectory(path);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_TRUE(state->complete) << state->missing;
  }
}

TEST(LoadReasonTest, InnermostReasonWinsAndCodesDecideOtherwise) {
  const absl::Status bad = absl::InvalidArgumentError("x");
  EXPECT_EQ(LoadReasonOf(bad), LoadReason::kContent);
  EXPECT_EQ(LoadReasonOf(absl::NotFoundError("x")), LoadReason::kIo);
  EXPECT_EQ(LoadReasonOf(absl::ResourceExhaustedError("x")), LoadReason::kMemory);
  const absl::Status table = WithLoadReason(bad, LoadReason::kTable);
  EXPECT_EQ(LoadReasonOf(WithLoadReason(table, LoadReason::kGraph)), LoadReason::kTable);
  EXPECT_TRUE(WithLoadReason(absl::OkStatus(), LoadReason::kTable).ok());
  EXPECT_EQ(LoadReasonName(LoadReason::kManifest), "manifest");
  EXPECT_EQ(LoadReasonName(LoadReason::kContent), "content");
  EXPECT_TRUE(IsContentError(bad));
  EXPECT_FALSE(IsContentError(absl::PermissionDeniedError("x")));
}

}  // namespace
}  // namespace ulfd::engine
