// WeightFile: the four formats, matching to layers, and broken files.  Digests of files.
// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/weights.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/weights/digest.h"
#include "engine/weights/npz.h"
#include "engine/weights/proto_file.h"
#include "tests/testing/broken_files.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename T>
void Put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// One array of an NDArray list.
std::string Array(std::vector<int64_t> dims, int32_t type, absl::string_view data,
                  uint32_t magic = 0xF993FAC9, int32_t storage = 0) {
  std::string to;
  Put(to, magic);
  Put(to, storage);
  Put(to, static_cast<uint32_t>(dims.size()));
  for (const int64_t dim : dims) Put(to, dim);
  Put(to, int32_t{1});
  Put(to, int32_t{0});
  Put(to, type);
  to.append(data.data(), data.size());
  return to;
}
using Arrays = std::vector<std::pair<std::string, std::string>>;  // Name, Array().
std::string List(const Arrays& arrays) {
  std::string to;
  Put(to, uint64_t{0x112});
  Put(to, uint64_t{0});
  Put(to, uint64_t{arrays.size()});
  for (const auto& array : arrays) to += array.second;
  Put(to, uint64_t{arrays.size()});
  for (const auto& array : arrays) {
    Put(to, uint64_t{array.first.size()});
    to += array.first;
  }
  return to;
}
std::string Floats(const std::vector<float>& values) {
  std::string to;
  for (const float value : values) Put(to, value);
  return to;
}

ulf::NetParameter Net(const std::string& text) {
  ulf::NetParameter net;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &net));
  return net;
}

class WeightsTest : public ::testing::Test {
 protected:
  // Reads a file of this content; the error's text follows the path.
  absl::StatusOr<std::unique_ptr<const WeightFile>> Read(absl::string_view content) {
    return WeightFile::Read(dir_.Write("w", content));
  }
  std::string ReadError(absl::string_view content) {
    const absl::Status status = Read(content).status();
    if (status.ok()) return "ok";
    EXPECT_EQ(status.message().substr(0, dir_.File("w").size()), dir_.File("w"));
    return std::string(status.message().substr(dir_.File("w").size()));
  }
  TempDir dir_;
};

TEST_F(WeightsTest, MatchesNpzByArgNamesPerLayer) {
  const float a[] = {1, 2, 3}, b[] = {4, 5};
  ASSERT_TRUE(WriteNpz(dir_.File("w"), {{"fc/w", NpyArray::FromFloat32({1, 3}, a)},
                                        {"b", NpyArray::FromFloat32({2}, b)}})
                  .ok());
  const auto file = WeightFile::Read(dir_.File("w"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->format(), "npz");
  EXPECT_EQ((*file)->bytes(), 20);
  // Two layers of one name keep different weights; an array may serve twice.
  const auto matched = (*file)->Match(
      Net("layer_params { name: 'x' arg_names: 'fc/w' arg_names: 'b' } layer_params { name: 'y' }"
          "layer_params { name: 'x' arg_names: 'b' }"));
  ASSERT_TRUE(matched.ok()) << matched.status();
  ASSERT_THAT(*matched, ElementsAre(::testing::SizeIs(2), IsEmpty(), ::testing::SizeIs(1)));
  EXPECT_EQ((*matched)[0][0].name, "fc/w");
  EXPECT_THAT((*matched)[0][0].dims, ElementsAre(1, 3));
  EXPECT_THAT((*matched)[0][0].data, ElementsAre(1, 2, 3));
  EXPECT_THAT((*matched)[2][0].data, ElementsAre(4, 5));
}

TEST_F(WeightsTest, NamesTheLayerWhoseArgNameIsMissing) {
  const auto file = Read(List({{"arg:w", Array({1}, 0, Floats({1}))}}));
  EXPECT_EQ((*file)
                ->Match(Net("layer_params { name: 'a' arg_names: 'w' }"
                            "layer_params { name: 'fc' type: 'bn_layer' arg_names: 'v' }"))
                .status()
                .message(),
            "layer 1 \"fc\" (bn_layer): weight \"v\" (arg_names) is not in " + dir_.File("w"));
}

TEST_F(WeightsTest, ReadsNdarrayListsAndCutsPrefixes) {
  const auto file = Read(List({{"arg:w", Array({2, 1}, 0, Floats({1, 2}))},
                               {"aux:d", Array({1}, 1, std::string("\0\0\0\0\0\0\xf8\x3f", 8))},
                               {"var:h", Array({1}, 2, std::string("\0\x3c", 2))},
                               {"i", Array({1}, 4, std::string("\5\0\0\0", 4))},
                               {"l", Array({1}, 6, std::string("\6\0\0\0\0\0\0\0", 8))}}));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->format(), "ndarray list");
  const auto matched = (*file)->Match(Net("layer_params { arg_names: ['w', 'd', 'h', 'i', 'l'] }"));
  ASSERT_TRUE(matched.ok()) << matched.status();
  const std::vector<Weight>& weights = (*matched)[0];
  EXPECT_THAT(weights[0].dims, ElementsAre(2, 1));
  EXPECT_THAT(weights[0].data, ElementsAre(1, 2));
  EXPECT_THAT(weights[1].data, ElementsAre(1.5f));
  EXPECT_THAT(weights[2].data, ElementsAre(1));
  EXPECT_THAT(weights[3].data, ElementsAre(5));
  EXPECT_THAT(weights[4].data, ElementsAre(6));
}

TEST_F(WeightsTest, RefusesBrokenNdarrayLists) {
  const std::string good = List({{"w", Array({2}, 0, Floats({1, 2}))}});
  EXPECT_EQ(ReadError(good + "zz"), ": NDArray list: 2 bytes after the last name");
  EXPECT_EQ(ReadError(good.substr(0, good.size() - 1)),
            ": NDArray list: name of array 0: 0 bytes left at byte 80, want 1");
  EXPECT_EQ(ReadError(List({{"w", Array({int64_t{1} << 40}, 0, Floats({1, 2}))}})),
            ": NDArray list: array 0 of 1: float32 [1099511627776]: 25 bytes left at byte 56, want "
            "4398046511104");
  EXPECT_EQ(ReadError(List({{"w", Array({int64_t{1} << 40, int64_t{1} << 40}, 0, "")}})),
            ": NDArray list: array 0 of 1: shape [1099511627776, 1099511627776] is not possible: "
            "more than 1099511627776 elements");
  EXPECT_EQ(ReadError(List({{"w", Array({-1}, 0, "")}})),
            ": NDArray list: array 0 of 1: shape [-1] is not possible: negative dimension");
  EXPECT_EQ(ReadError(List({{"w", Array({}, 0, "")}})),
            ": NDArray list: array 0 of 1: 0 dimensions, want 1 to 32");
  EXPECT_EQ(ReadError(List({{"w", Array({1}, 9, "abcd")}})),
            ": NDArray list: array 0 of 1: type 9, want 0 to 6");
  EXPECT_EQ(ReadError(List({{"w", Array({1}, 0, "abcd", 0xF993FAC8)}})),
            ": NDArray list: array 0 of 1: begins with 0xf993fac8, want 0xf993fac9 (version 2)");
  EXPECT_EQ(ReadError(List({{"w", Array({1}, 0, "abcd", 0xF993FAC9, 1)}})),
            ": NDArray list: array 0 of 1: storage 1, want 0 (dense)");
  EXPECT_EQ(ReadError(List({{"arg:w", Array({1}, 0, "abcd")}, {"w", Array({1}, 0, "abcd")}})),
            ": NDArray list: array \"w\": occurs twice");
  EXPECT_EQ(ReadError(List({{"w\xff", Array({1}, 0, "abcd")}})),
            ": NDArray list: name of array 0: \"w\\xff\" is not UTF-8");
  std::string many = good;
  many[16] = '\x7f';
  EXPECT_EQ(ReadError(many), ": NDArray list: claims 127 arrays in 81 bytes");
}

constexpr char kText[] =
    "layer_weights_params { name: 'fc' blob_datas { shape: [2, 2] data: [1, 2, 3, 4] }"
    "                                  blob_datas { shape: 2 data: [5, 6] } }\n"
    "layer_weights_params { name: 'p' blob_datas { shape: [1, 1, 1] data: 0.25 } }\n";

TEST_F(WeightsTest, MatchesUlfWeightsByLayerNameInBothForms) {
  ulf::NetWeightsParameter message;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kText, &message));
  const ulf::NetParameter net =
      Net("layer_params { name: 'fc' } layer_params { type: 'input_layer' }"
          "layer_params { name: 'p' } layer_params { name: 'fc' arg_names: 'ignored' }");
  for (const std::string& content : {std::string(kText), message.SerializeAsString()}) {
    const auto file = Read(content);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->format(), content == kText ? "ulf text" : "ulf binary");
    EXPECT_EQ((*file)->bytes(), 28);
    const auto matched = (*file)->Match(net);
    ASSERT_TRUE(matched.ok()) << matched.status();
    ASSERT_THAT((*matched)[0], ::testing::SizeIs(2));
    EXPECT_THAT((*matched)[0][0].data, ElementsAre(1, 2, 3, 4));
    EXPECT_EQ((*matched)[0][1].name, "weight 1");
    EXPECT_THAT((*matched)[1], IsEmpty());
    EXPECT_THAT((*matched)[2][0].dims, ElementsAre(1, 1, 1));
    EXPECT_EQ((*matched)[3][0].data.data(), (*matched)[0][0].data.data());  // Shared by name.
  }
}

TEST_F(WeightsTest, RefusesUlfWeightsThatDoNotFit) {
  EXPECT_EQ((*Read(kText))->Match(Net("layer_params { name: 'fc' }")).status().message(),
            dir_.File("w") + ": has weights of layer \"p\", which the graph lacks");
  EXPECT_EQ(ReadError(absl::StrCat(kText, "layer_weights_params { name: 'p' }")),
            ": layer \"p\": has weights twice");
  EXPECT_EQ(ReadError("layer_weights_params { name: 'p' blob_datas { shape: [2, 3] data: 1 } }"),
            ": layer \"p\" weight 0: 1 values, want 6 for shape [2, 3]");
  EXPECT_EQ(ReadError("layer_weights_params { name: 'p' blob_datas { shape: [2, -3] } }"),
            ": layer \"p\" weight 0: shape [2, -3] is not possible: negative dimension");
  EXPECT_EQ(ReadError("layer_weights_params {\n blob_data {} }"),
            ":2:12: Message type \"ulf.LayerWeightsParameter\" has no field named \"blob_data\"; "
            "did you mean \"blob_datas\"?");
  EXPECT_THAT(ReadError(std::string("\0\1\2\3", 4)),
              HasSubstr(": binary ulf.NetWeightsParameter: "));
}

TEST_F(WeightsTest, AnEmptyFileHasNoWeights) {
  const auto file = Read("");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(*(*file)->Match(Net("layer_params { name: 'a' }")), ElementsAre(IsEmpty()));
}

TEST_F(WeightsTest, EmptyRefusesLayersThatListWeights) {
  const auto none = WeightFile::Empty();
  EXPECT_EQ(none->format(), "none");
  EXPECT_THAT(*none->Match(Net("layer_params {}")), ElementsAre(IsEmpty()));
  EXPECT_EQ(
      none->Match(Net("layer_params { name: 'f' type: 't' arg_names: 'w' }")).status().message(),
      "layer 0 \"f\" (t): weight \"w\" (arg_names), but there is no weight file");
}

TEST_F(WeightsTest, NamesArraysWithNanOrInfinity) {
  std::vector<float> large(10000, 1.0f);
  large[9000] = -INFINITY;
  const auto list = Read(List({{"n", Array({2}, 0, Floats({1, NAN}))},
                               {"big", Array({10000}, 0, Floats(large))},
                               {"ok", Array({2}, 0, Floats({3e38f, -3e38f}))}}));
  EXPECT_THAT((*list)->NonFiniteArrays(), ::testing::UnorderedElementsAre("n", "big"));
  EXPECT_THAT(
      (*Read("layer_weights_params { name: 'p' blob_datas { data: inf } }"))->NonFiniteArrays(),
      ElementsAre("layer \"p\" weight 0"));
}

TEST_F(WeightsTest, SurvivesDamage) {
  ulf::NetWeightsParameter message;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kText, &message));
  const std::string list =
      List({{"arg:w", Array({2, 3}, 0, std::string(24, 'x'))}, {"b", Array({3}, 2, "abcdef")}});
  const ulf::NetParameter net = Net("layer_params { name: 'fc' arg_names: 'w' }");
  const auto read = [&](const std::string& bad) {
    const auto file = Read(bad);
    if (!file.ok()) return;
    (*file)->NonFiniteArrays();
    const auto matched = (*file)->Match(net);
    if (!matched.ok()) return;
    float sum = 0;  // Touches every value, for the sanitizers.
    for (const Weight& weight : (*matched)[0]) {
      for (const float value : weight.data) sum += value;
    }
    ::testing::Test::RecordProperty("sum", std::isnan(sum) ? 1 : 0);
  };
  for (const std::string& good : {list, message.SerializeAsString(), std::string(kText)}) {
    ForEachPrefix(good, read);
    ForEachDamage(good, 3000, read);
  }
  ForEachPrefix(list, [&](const std::string& bad) {
    if (bad.size() >= 8) {
      EXPECT_NE(ReadError(bad), "ok");
    }
  });
}

TEST_F(WeightsTest, ReadsTheExportsOfRealModels) {
  const std::string models = absl::StrCat(::ulfd::testing::SharedDir(), "/models");
  if (!std::filesystem::exists(models)) GTEST_SKIP() << "no " << models;
  for (const auto& [dir, weights, format] : {std::tuple("din", "dense.npz", "npz"),
                                             std::tuple("tdm_dnn", "dense.txt", "ndarray list")}) {
    ulf::NetParameter net;
    const std::string base = absl::StrCat(models, "/", dir, "/1/");
    const auto graph = ReadProtoFile(base + "graph_ulf.txt", ProtoFormat::kDetect, net);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto file = WeightFile::Read(base + weights);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->format(), format);
    EXPECT_GT((*file)->bytes(), 100000);
    EXPECT_THAT((*file)->NonFiniteArrays(), IsEmpty());
    const auto matched = (*file)->Match(net);
    ASSERT_TRUE(matched.ok()) << matched.status();
    for (int i = 0; i < net.layer_params_size(); ++i) {
      EXPECT_EQ((*matched)[static_cast<size_t>(i)].size(),
                static_cast<size_t>(net.layer_params(i).arg_names_size()));
    }
  }
}

TEST(Digest, Sha256OfFile) {
  const TempDir dir;
  EXPECT_EQ(*Sha256OfFile(dir.Write("e", "")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(*Sha256OfFile(dir.Write("abc", "abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(*Sha256OfFile(dir.Write("a", std::string(3000000, 'a'))),
            "2a152c894398719c0570f83fac34ac03a0f6e8e474b995c2403aa5434f7b9dd4");
  EXPECT_EQ(Sha256OfFile(dir.File("none")).status().code(), absl::StatusCode::kNotFound);
}

TEST(Digest, ContentHasherDelimitsPieces) {
  const TempDir dir;
  const auto hash = [](std::vector<std::string> pieces) {
    ContentHasher hasher;
    for (const std::string& piece : pieces) hasher.Add(piece);
    return hasher.Hex();
  };
  EXPECT_EQ(hash({"ab", "c"}).size(), 32u);
  EXPECT_EQ(hash({"ab", "c"}), hash({"ab", "c"}));
  EXPECT_NE(hash({"ab", "c"}), hash({"a", "bc"}));
  EXPECT_NE(hash({"a", ""}), hash({"a"}));
  ContentHasher hasher;
  ASSERT_TRUE(hasher.AddFile(dir.Write("f", std::string(2500000, 'q'))).ok());
  EXPECT_EQ(hasher.Hex(), hash({std::string(2500000, 'q')}));
  EXPECT_FALSE(hasher.AddFile(dir.File("none")).ok());
}

}  // namespace
}  // namespace ulfd::engine
