// KServe v2: raw and typed contents, and the exact text of what is refused.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/kserve_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "server/scoring/kserve_rows.h"
#include "tests/testing/codec_fixture.h"

namespace ulfd::server {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;

class KserveCodecTest : public CodecFixture<ModelInferRequest, ModelInferResponse> {
 protected:
  template <typename T>
  static std::string Bytes(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }
  static void Add(ModelInferRequest& request, const std::string& name, const std::string& datatype,
                  const std::vector<int64_t>& shape) {
    auto& input = *request.add_inputs();
    input.set_name(name);
    input.set_datatype(datatype);
    input.mutable_shape()->Add(shape.begin(), shape.end());
  }
  // Three ads; inputs in the order mid.ids, price, uid.ids, mask.
  static ModelInferRequest Envelope() {
    ModelInferRequest request;
    request.set_model_name("tiny");
    request.set_id("r7");
    Add(request, "mid.ids", "INT64", {3});
    Add(request, "price", "FP32", {3, 1});
    Add(request, "uid.ids", "INT64", {1});
    Add(request, "mask", "INT32", {1, 2});
    return request;
  }
  static ModelInferRequest Raw() {
    ModelInferRequest request = Envelope();
    request.add_raw_input_contents(Bytes<int64_t>({12, 10, 11}));
    request.add_raw_input_contents(Bytes<float>({0.25, 0.5, 4}));
    request.add_raw_input_contents(Bytes<int64_t>({1}));
    request.add_raw_input_contents(Bytes<int32_t>({1, 1}));
    return request;
  }
  static ModelInferRequest Typed() {
    ModelInferRequest request = Envelope();
    for (int64_t id : {12, 10, 11}) {
      request.mutable_inputs(0)->mutable_contents()->add_int64_contents(id);
    }
    for (float price : {0.25f, 0.5f, 4.f}) {
      request.mutable_inputs(1)->mutable_contents()->add_fp32_contents(price);
    }
    request.mutable_inputs(2)->mutable_contents()->add_int64_contents(1);
    for (int i = 0; i < 2; ++i) request.mutable_inputs(3)->mutable_contents()->add_int_contents(1);
    return request;
  }

  ModelInferResponse Infer(const ModelInferRequest& request) {
    const absl::StatusOr<ModelInferResponse> response = Answer(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.value_or(ModelInferResponse());
  }
};

TEST_F(KserveCodecTest, RawInRawOut) {
  const ModelInferResponse response = Infer(Raw());
  EXPECT_EQ(decoded_.ads, 3);
  EXPECT_EQ(response.model_name(), "tiny");
  EXPECT_EQ(response.model_version(), "3");
  EXPECT_EQ(response.id(), "r7");
  ASSERT_EQ(response.outputs_size(), 2);
  ASSERT_EQ(response.raw_output_contents_size(), 2);
  EXPECT_EQ(response.outputs(0).name(), "score");
  EXPECT_EQ(response.outputs(0).datatype(), "FP32");
  EXPECT_THAT(response.outputs(0).shape(), ::testing::ElementsAre(3, 2));
  EXPECT_FALSE(response.outputs(0).has_contents());
  EXPECT_EQ(response.raw_output_contents(0), Bytes<float>({3.25, 1, 1.5, 1, 6, 1}));
}

TEST_F(KserveCodecTest, TypedInTypedOut) {
  const ModelInferResponse response = Infer(Typed());
  ASSERT_EQ(response.outputs_size(), 2);
  EXPECT_EQ(response.raw_output_contents_size(), 0);
  EXPECT_THAT(response.outputs(0).contents().fp32_contents(),
              ::testing::ElementsAre(3.25, 1, 1.5, 1, 6, 1));
}

TEST_F(KserveCodecTest, OutputsThatAreAskedFor) {
  ModelInferRequest request = Raw();
  request.add_outputs()->set_name("user_vec");
  const ModelInferResponse response = Infer(request);
  ASSERT_EQ(response.outputs_size(), 1);
  EXPECT_EQ(response.outputs(0).name(), "user_vec");
  request.add_outputs()->set_name("nope");
  EXPECT_EQ(Error(request), "output \"nope\": unknown; the model has \"score\", \"user_vec\"");
}

TEST_F(KserveCodecTest, ValuesAndSegments) {
  ModelInferRequest request = Raw();
  request.mutable_inputs(0)->set_shape(0, 4);
  request.set_raw_input_contents(0, Bytes<int64_t>({10, 11, 12, 99}));
  Add(request, "mid.values", "FP32", {4});
  request.add_raw_input_contents(Bytes<float>({1, 2, 1, 5}));
  Add(request, "mid.segments", "INT32", {3});
  request.add_raw_input_contents(Bytes<int32_t>({2, 0, 2}));
  EXPECT_EQ(Infer(request).raw_output_contents(0), Bytes<float>({5.25, 1, 0.5, 1, 7, 1}));

  request.set_raw_input_contents(5, Bytes<int32_t>({2, 0, 3}));
  EXPECT_EQ(Error(request), "input \"mid.segments\": counts sum to 5, want 4, the number of ids");
  request.set_raw_input_contents(5, Bytes<int32_t>({5, -1, 0}));
  EXPECT_EQ(Error(request), "input \"mid.segments\": counts[1] is -1, want 0 or more");
  request.mutable_inputs(4)->set_shape(0, 3);
  request.set_raw_input_contents(4, Bytes<float>({1, 2, 1}));
  EXPECT_EQ(Error(request), "input \"mid.values\": 3 values, want 4, the length of \"mid.ids\"");
}

TEST_F(KserveCodecTest, RawErrors) {
  ModelInferRequest request = Raw();
  request.mutable_raw_input_contents()->RemoveLast();
  EXPECT_EQ(Error(request), "raw_input_contents: 3 entries for 4 inputs, want one for each");
  request = Raw();
  request.mutable_raw_input_contents(0)->pop_back();
  EXPECT_EQ(Error(request), "input \"mid.ids\": 23 raw bytes, want 24 for INT64 [3]");
  request = Raw();
  request.mutable_inputs(0)->mutable_contents()->add_int64_contents(1);
  EXPECT_EQ(Error(request),
            "input \"mid.ids\": contents beside raw_input_contents, want one of the two");
}

TEST_F(KserveCodecTest, IntegersAreFloatsWhereFloatsAreWanted) {
  ModelInferRequest request = Raw();
  request.mutable_inputs(1)->set_datatype("INT32");
  request.set_raw_input_contents(1, Bytes<int32_t>({7, 8, 9}));
  EXPECT_EQ(Infer(request).raw_output_contents(0), Bytes<float>({10, 1, 9, 1, 11, 1}));
  request = Typed();
  request.mutable_inputs(1)->set_datatype("INT64");
  auto& contents = *request.mutable_inputs(1)->mutable_contents();
  contents.clear_fp32_contents();
  for (const int64_t price : {0, -1, 16777217}) contents.add_int64_contents(price);
  EXPECT_EQ(Error(request), "input \"price\": element 2 is 16777217, which is no float32");
  contents.set_int64_contents(2, 2);
  EXPECT_THAT(Infer(request).outputs(0).contents().fp32_contents(),
              ::testing::ElementsAre(3, 1, 0, 1, 4, 1));
}

// A raw request whose input at the place is of that type.
class EveryType : public KserveCodecTest {
 protected:
  template <typename T>
  static ModelInferRequest With(int input, const char* datatype, const std::vector<T>& values) {
    ModelInferRequest request = Raw();
    request.mutable_inputs(input)->set_datatype(datatype);
    request.set_raw_input_contents(input, Bytes(values));
    return request;
  }
  template <typename T>
  std::string Scores(int input, const char* datatype, const std::vector<T>& values) {
    return Infer(With(input, datatype, values)).raw_output_contents(0);
  }
};

TEST_F(EveryType, RawIntegers) {
  const std::string want = Infer(Raw()).raw_output_contents(0);
  EXPECT_EQ(Scores<int8_t>(0, "INT8", {12, 10, 11}), want);
  EXPECT_EQ(Scores<int16_t>(0, "INT16", {12, 10, 11}), want);
  EXPECT_EQ(Scores<int32_t>(0, "INT32", {12, 10, 11}), want);
  EXPECT_EQ(Scores<uint8_t>(0, "UINT8", {12, 10, 11}), want);
  EXPECT_EQ(Scores<uint16_t>(0, "UINT16", {12, 10, 11}), want);
  EXPECT_EQ(Scores<uint32_t>(0, "UINT32", {12, 10, 11}), want);
  EXPECT_EQ(Scores<uint64_t>(0, "UINT64", {12, 10, 11}), want);
  EXPECT_EQ(Scores<int64_t>(3, "INT64", {1, 1}), want);
  EXPECT_EQ(Scores<uint8_t>(3, "BOOL", {1, 255}), want);  // 1 unless it is 0.
  EXPECT_EQ(Scores<int8_t>(1, "INT8", {7, 8, 9}), Bytes<float>({10, 1, 9, 1, 11, 1}));
  EXPECT_EQ(Error(With<uint64_t>(0, "UINT64", {1, 1, uint64_t{1} << 63})),
            "input \"mid.ids\": element 2 is 9223372036854775808, which is no int64");
  EXPECT_EQ(Error(With<int64_t>(3, "INT64", {1, int64_t{1} << 31})),
            "input \"mask\": element 1 is 2147483648, which is no int32");
  EXPECT_EQ(Error(With<int64_t>(1, "INT64", {0, 0, INT64_MAX})),
            "input \"price\": element 2 is 9223372036854775807, which is no float32");
  EXPECT_EQ(Error(With<uint64_t>(1, "UINT64", {0, 0, UINT64_MAX})),
            "input \"price\": element 2 is 18446744073709551615, which is no float32");
  EXPECT_EQ(Error(With<int8_t>(0, "INT8", {1, 2})),
            "input \"mid.ids\": 2 raw bytes, want 3 for INT8 [3]");
}

TEST_F(EveryType, RawFloats) {
  const std::string want = Infer(Raw()).raw_output_contents(0);
  EXPECT_EQ(Scores<double>(1, "FP64", {0.25, 0.5, 4}), want);
  EXPECT_EQ(Scores<uint16_t>(1, "FP16", {0x3400, 0x3800, 0x4400}), want);
  EXPECT_EQ(Scores<uint16_t>(1, "BF16", {0x3e80, 0x3f00, 0x4080}), want);
  EXPECT_EQ(Scores<uint8_t>(1, "BOOL", {1, 0, 1}), Bytes<float>({4, 1, 1, 1, 3, 1}));
  EXPECT_EQ(Error(With<double>(1, "FP64", {0, 1e300, 0})),
            "input \"price\": element 1 is 1e+300, which is no float32");
}

TEST_F(EveryType, Typed) {
  const auto with = [](int input, const char* datatype, const auto& add) {
    ModelInferRequest request = Typed();
    request.mutable_inputs(input)->set_datatype(datatype);
    request.mutable_inputs(input)->clear_contents();
    add(*request.mutable_inputs(input)->mutable_contents());
    return request;
  };
  const auto scores = [&](const ModelInferRequest& request) {
    const auto values = Infer(request).outputs(0).contents().fp32_contents();
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> want = scores(Typed());
  using Contents = inference::InferTensorContents;
  const auto ids = [](auto add) {
    return [add](Contents& contents) {
      for (const int id : {12, 10, 11}) (contents.*add)(id);
    };
  };
  for (const char* datatype : {"INT8", "INT16", "INT32"}) {
    EXPECT_EQ(scores(with(0, datatype, ids(&Contents::add_int_contents))), want) << datatype;
  }
  for (const char* datatype : {"UINT8", "UINT16", "UINT32"}) {
    EXPECT_EQ(scores(with(0, datatype, ids(&Contents::add_uint_contents))), want) << datatype;
  }
  EXPECT_EQ(scores(with(0, "UINT64", ids(&Contents::add_uint64_contents))), want);
  EXPECT_EQ(scores(with(1, "FP64",
                        [](Contents& contents) {
                          for (const double price : {0.25, 0.5, 4.}) {
                            contents.add_fp64_contents(price);
                          }
                        })),
            want);
  EXPECT_EQ(scores(with(3, "BOOL",
                        [](Contents& contents) {
                          for (int i = 0; i < 2; ++i) contents.add_bool_contents(true);
                        })),
            want);
  const auto value = [&](const char* datatype, int number) {
    return Error(with(0, datatype, [number](Contents& contents) {
      for (int i = 0; i < 3; ++i) contents.add_int_contents(number);
    }));
  };
  EXPECT_EQ(value("INT8", 128), "input \"mid.ids\": value 128, which no INT8 has");
  EXPECT_EQ(value("INT16", -32769), "input \"mid.ids\": value -32769, which no INT16 has");
  EXPECT_EQ(value("UINT8", 1),
            "input \"mid.ids\": values in int_contents, want uint_contents for UINT8");
  EXPECT_EQ(Error(with(1, "FP16", ids(&Contents::add_int_contents))),
            "input \"price\": values in int_contents, want raw_input_contents for FP16");
}

TEST_F(KserveCodecTest, NarrowTypesDoNotBecomeMoreThanTheLimit) {
  ModelInferRequest request = Raw();
  request.mutable_inputs(0)->set_datatype("INT8");
  request.set_raw_input_contents(0, Bytes<int8_t>({12, 10, 11}));
  limits_.max_message_bytes = 24;
  Infer(request);
  limits_.max_message_bytes = 23;
  EXPECT_EQ(
      Decode(request).message(),
      "input \"mid.ids\": in the types that the model wants, the inputs up to this one take 24 "
      "bytes, more than 23 (limits.max_message_bytes)");
  EXPECT_EQ(CountRows(request, *model_, limits_), 3);
}

TEST_F(KserveCodecTest, TypedErrors) {
  ModelInferRequest request = Typed();
  request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  EXPECT_EQ(Error(request),
            "input \"mid.ids\": values in fp32_contents, want int64_contents for INT64");
  request = Typed();
  request.mutable_inputs(1)->mutable_contents()->add_fp32_contents(1);
  EXPECT_EQ(Error(request), "input \"price\": 4 values, want 3 for shape [3, 1]");
}

TEST_F(KserveCodecTest, NamesTypesAndShapes) {
  ModelInferRequest request = Raw();
  request.mutable_inputs(0)->set_name("mid.idz");
  EXPECT_EQ(Error(request), "input \"mid.idz\": unknown; did you mean \"mid.ids\" or \"uid.ids\"?");
  request = Raw();
  request.mutable_inputs(2)->set_name("mid.ids");
  EXPECT_EQ(Error(request), "input \"mid.ids\": given twice");
  request = Raw();
  for (const char* datatype : {"FP32", "FP16", "BYTES", "fp32", ""}) {
    request.mutable_inputs(0)->set_datatype(datatype);
    EXPECT_EQ(Error(request),
              absl::StrCat("input \"mid.ids\": datatype \"", datatype, "\", want \"INT64\""));
  }
  request = Raw();
  request.mutable_inputs(0)->add_shape(1);
  EXPECT_EQ(Error(request), "input \"mid.ids\": shape [3, 1], want one dimension");
  request = Raw();
  request.mutable_inputs(3)->set_name("mid.values");
  request.mutable_inputs(3)->set_datatype("FP32");
  request.mutable_inputs(3)->clear_shape();
  request.mutable_inputs(3)->add_shape(2);
  request.mutable_inputs(0)->set_name("mid.segments");
  request.mutable_inputs(0)->set_datatype("INT32");
  request.set_raw_input_contents(0, Bytes<int32_t>({1, 1, 1}));
  EXPECT_EQ(Error(request), "input \"mid.values\": given without \"mid.ids\"");
  request = Raw();
  request.mutable_inputs()->RemoveLast();
  request.mutable_raw_input_contents()->RemoveLast();
  EXPECT_THAT(Error(request), ::testing::StartsWith("input \"mask\": missing, want INT32 ["));
}

TEST_F(KserveCodecTest, Rows) {
  ModelInferRequest request = Raw();
  request.mutable_inputs(0)->set_shape(0, 4);
  request.set_raw_input_contents(0, Bytes<int64_t>({1, 2, 3, 4}));
  EXPECT_EQ(Error(request),
            "input \"price\": 3 rows, but input \"mid.ids\" has 4: every ad input has one row per "
            "ad");
  request = Raw();
  Add(request, "uid.segments", "INT32", {2});
  request.add_raw_input_contents(Bytes<int32_t>({1, 0}));
  EXPECT_EQ(Error(request), "input \"uid.segments\": 2 rows, want 1: it belongs to the user");
  request = Raw();
  request.mutable_inputs(0)->set_shape(0, 0);
  request.set_raw_input_contents(0, "");
  request.mutable_inputs(1)->set_shape(0, 0);
  request.set_raw_input_contents(1, "");
  EXPECT_EQ(Error(request), "0 ads, want 1..2000");
  limits_.max_ads = 2;
  EXPECT_EQ(Error(Raw()), "3 ads, want 1..2");
}

TEST_F(KserveCodecTest, EqualRowsOfTheUserAreTakenOnce) {
  const ModelInferResponse once = Infer(Raw());
  ModelInferRequest request = Raw();
  request.mutable_inputs(2)->set_shape(0, 3);
  request.set_raw_input_contents(2, Bytes<int64_t>({1, 1, 1}));
  Add(request, "uid.segments", "INT32", {3});
  request.add_raw_input_contents(Bytes<int32_t>({1, 1, 1}));
  request.mutable_inputs(3)->set_shape(0, 3);
  request.set_raw_input_contents(3, Bytes<int32_t>({1, 1, 1, 1, 1, 1}));
  const ModelInferResponse tiled = Infer(request);
  EXPECT_EQ(tiled.raw_output_contents(0), once.raw_output_contents(0));
  EXPECT_EQ(decoded_.tiled_inputs, 3);

  request.set_raw_input_contents(3, Bytes<int32_t>({1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(Error(request),
            "input \"mask\": 3 rows, of which row 2 is not like the first, want 1: it belongs to "
            "the user");
  request.set_raw_input_contents(3, Bytes<int32_t>({1, 1, 1, 1, 1, 1}));
  request.set_raw_input_contents(2, Bytes<int64_t>({1, 2, 1}));
  EXPECT_THAT(Error(request), ::testing::StartsWith("input \"uid.ids\": 3 rows, of which row 1 "));
  // As many ids, cut otherwise.
  request.set_raw_input_contents(2, Bytes<int64_t>({1, 1, 1}));
  request.set_raw_input_contents(4, Bytes<int32_t>({3, 0, 0}));
  EXPECT_THAT(Error(request), ::testing::StartsWith("input \"uid.segments\": 3 rows, of which "));
  // As many rows as nothing else.
  request = Raw();
  request.mutable_inputs(3)->set_shape(0, 2);
  request.set_raw_input_contents(3, Bytes<int32_t>({1, 1, 1, 1}));
  EXPECT_EQ(Error(request), "input \"mask\": 2 rows, want 1: it belongs to the user");
  // Rows that are no rows of it: the error tells the shape that was sent.
  request.mutable_inputs(3)->clear_shape();
  request.mutable_inputs(3)->add_shape(3);
  request.set_raw_input_contents(3, Bytes<int32_t>({1, 1, 1}));
  EXPECT_EQ(Error(request), "input \"mask\": shape [3], want [users, 2]");
}

TEST_F(KserveCodecTest, TheUsersRowMayComeWithoutItsAxis) {
  ModelInferRequest request = Raw();
  const ModelInferResponse once = Infer(request);
  request.mutable_inputs(3)->clear_shape();
  request.mutable_inputs(3)->add_shape(2);
  EXPECT_EQ(Infer(request).raw_output_contents(0), once.raw_output_contents(0));
}

TEST_F(KserveCodecTest, RowsOfAUserWithoutIdsAreTakenOnce) {
  // Contents without values have no address.
  ModelInferRequest request = Typed();
  request.mutable_inputs(2)->set_shape(0, 0);
  request.mutable_inputs(2)->mutable_contents()->clear_int64_contents();
  const ModelInferResponse once = Infer(request);
  Add(request, "uid.segments", "INT32", {3});
  for (int i = 0; i < 3; ++i) request.mutable_inputs(4)->mutable_contents()->add_int_contents(0);
  const ModelInferResponse tiled = Infer(request);
  EXPECT_EQ(decoded_.tiled_inputs, 2);
  EXPECT_EQ(tiled.outputs(0).SerializeAsString(), once.outputs(0).SerializeAsString());
}

TEST_F(KserveCodecTest, FeaturesAsMatricesOfIds) {
  ModelInferRequest request = Raw();
  const auto items = [&](const std::vector<int64_t>& shape, const std::vector<int64_t>& ids) {
    request.mutable_inputs(0)->set_name("items");
    request.mutable_inputs(0)->mutable_shape()->Assign(shape.begin(), shape.end());
    request.set_raw_input_contents(0, Bytes<int64_t>(ids));
  };
  const std::string one_each = Infer(request).raw_output_contents(0);
  items({3, 1}, {12, 10, 11});
  EXPECT_EQ(Infer(request).raw_output_contents(0), one_each);
  EXPECT_EQ(CountRows(request, *model_, limits_), 3);
  items({3}, {12, 10, 11});
  EXPECT_EQ(Infer(request).raw_output_contents(0), one_each);
  // 10 and 11; none; 12: see ValuesAndSegments for the formula.
  items({3, 4}, {0, 10, 11, 0, 0, 0, 0, 0, 12, 0, 0, 0});
  EXPECT_EQ(Infer(request).raw_output_contents(0), Bytes<float>({3.25, 1, 0.5, 1, 7, 1}));
  items({3, 0}, {});
  EXPECT_EQ(Infer(request).raw_output_contents(0), Bytes<float>({0.25, 1, 0.5, 1, 4, 1}));
  items({3, 3}, {10, 0, 11, 0, 0, 0, 12, 0, 0});
  EXPECT_EQ(Error(request),
            "input \"items\": row 0: the padding id 0 between ids, want it before or behind them");
  items({1, 1, 3}, {12, 10, 11});
  EXPECT_EQ(Error(request),
            "input \"items\": shape [1, 1, 3], want [rows] or [rows, ids of a row]");
  items({int64_t{1} << 40, 0}, {});
  EXPECT_EQ(Decode(request).message(),
            "input \"items\": 1099511627776 rows, want at most 2000 (limits.max_ads)");
  limits_.max_ids_per_feature = 2;
  items({3, 1}, {12, 10, 11});
  EXPECT_EQ(Error(request), "input \"items\": 3 ids, want at most 2 (limits.max_ids_per_feature)");
}

TEST_F(KserveCodecTest, AMatrixOfTheUserIsTakenOnce) {
  ModelInferRequest request = Raw();
  const std::string once = Infer(request).raw_output_contents(0);
  request.mutable_inputs(2)->set_name("uid");
  request.mutable_inputs(2)->set_shape(0, 3);
  request.mutable_inputs(2)->add_shape(1);
  request.set_raw_input_contents(2, Bytes<int64_t>({1, 1, 1}));
  EXPECT_EQ(Infer(request).raw_output_contents(0), once);
  request.set_raw_input_contents(2, Bytes<int64_t>({1, 1, 2}));
  EXPECT_THAT(Error(request), ::testing::StartsWith("input \"uid.ids\": 3 rows, of which row 2 "));
}

TEST_F(KserveCodecTest, AMatrixHoldsIdsAndNumbers) {
  const std::string wanted = Infer(Raw()).raw_output_contents(0);
  const auto request = [](const std::vector<float>& ads, const std::vector<int64_t>& ads_shape,
                          const std::vector<int64_t>& user) {
    ModelInferRequest request;
    request.set_model_name("tiny");
    Add(request, "of_ad", "FP32", ads_shape);
    request.add_raw_input_contents(Bytes<float>(ads));
    Add(request, "of_user", "INT64", {static_cast<int64_t>(user.size()) / 3, 3});
    request.add_raw_input_contents(Bytes<int64_t>(user));
    return request;
  };
  const std::vector<float> ads = {0.25, 9, 12.75, 0.5, 9, 10, 4, 9, 11};
  EXPECT_EQ(Infer(request(ads, {3, 3}, {1, 1, 1})).raw_output_contents(0), wanted);
  EXPECT_EQ(Infer(request(ads, {3, 1, 3}, {1, 1, 1})).raw_output_contents(0), wanted);
  const auto per_ad = request(ads, {3, 3}, {1, 1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(Infer(per_ad).raw_output_contents(0), wanted);
  EXPECT_EQ(CountRows(per_ad, *model_, limits_), 3);
  EXPECT_THAT(Error(request(ads, {3, 3}, {1, 1, 1, 1, 1, 1, 1, 2, 1})),
              ::testing::StartsWith("input \"uid.ids\": 3 rows, of which row 2 "));
  EXPECT_THAT(Error(request(ads, {3, 3}, {1, 1, 1, 1, 1, 1, 1, 1, 2})),
              ::testing::StartsWith("input \"mask\": 3 rows, of which row 2 "));
  EXPECT_EQ(Error(request(ads, {9, 1}, {1, 1, 1})),
            "input \"of_ad\": shape [9, 1], want 3 values in each row");
  EXPECT_EQ(Error(request({1}, {}, {1, 1, 1})),
            "input \"of_ad\": shape [], want 3 values in each row");
  EXPECT_EQ(Error(request({}, {0, 3}, {1, 1, 1})), "0 ads, want 1..2000");
  EXPECT_EQ(Error(request({}, {0, int64_t{1} << 40}, {1, 1, 1})), "0 ads, want 1..2000");
  EXPECT_EQ(Error(request({1, 1, 1, 1, 1, NAN}, {2, 3}, {1, 1, 1})),
            "input \"of_ad\": row 1, column 2 is nan, which is no int64");
  EXPECT_EQ(Error(request({1, 1, 1e30f}, {1, 3}, {1, 1, 1})),
            "input \"of_ad\": row 0, column 2 is 1e+30, which is no int64");
  EXPECT_EQ(Error(request(ads, {3, 3}, {1, 1, int64_t{1} << 31})),
            "input \"of_user\": row 0, column 2 is 2147483648, which is no int32");
  limits_.max_message_bytes = 35;
  EXPECT_EQ(Error(request(ads, {3, 3}, {1, 1, 1}), absl::StatusCode::kResourceExhausted),
            "input \"of_ad\": in the types that the model wants, the inputs up to this one take 36 "
            "bytes, more than 35 (limits.max_message_bytes)");
  limits_ = {};
  ModelInferRequest both = request(ads, {3, 3}, {1, 1, 1});
  Add(both, "price", "FP32", {3, 1});
  both.add_raw_input_contents(Bytes<float>({0, 0, 0}));
  EXPECT_EQ(Error(both), "input \"price\": given beside \"of_ad\", want one form of it");
}

TEST_F(KserveCodecTest, IdsOfAMatrixMayBeOfAnotherType) {
  const std::string wanted = Infer(Raw()).raw_output_contents(0);
  ModelInferRequest request = Raw();
  request.mutable_inputs(0)->set_name("items");
  request.mutable_inputs(0)->set_datatype("INT32");
  request.set_raw_input_contents(0, Bytes<int32_t>({12, 10, 11}));
  EXPECT_EQ(Infer(request).raw_output_contents(0), wanted);
  request.mutable_inputs(0)->set_datatype("FP32");
  request.set_raw_input_contents(0, Bytes<float>({12, 10, 11}));
  EXPECT_EQ(Infer(request).raw_output_contents(0), wanted);
  request.mutable_inputs(0)->add_shape(2);  // Ids beside padding.
  request.set_raw_input_contents(0, Bytes<float>({12, 0, 10, 0, 0, 11}));
  EXPECT_EQ(Infer(request).raw_output_contents(0), wanted);
}

TEST_F(KserveCodecTest, OneNumberForEachRowNeedsNoSecondDimension) {
  ModelInferRequest request = Raw();
  const std::string wanted = Infer(request).raw_output_contents(0);
  request.mutable_inputs(1)->mutable_shape()->RemoveLast();
  EXPECT_EQ(Infer(request).raw_output_contents(0), wanted);
}

TEST_F(KserveCodecTest, AFeatureHasOneForm) {
  for (const bool matrix_first : {false, true}) {
    ModelInferRequest request = Raw();
    Add(request, "items", "INT64", {3, 1});
    request.add_raw_input_contents(Bytes<int64_t>({12, 10, 11}));
    if (matrix_first) request.mutable_inputs()->SwapElements(0, 4);
    if (matrix_first) request.mutable_raw_input_contents()->SwapElements(0, 4);
    EXPECT_EQ(Error(request),
              matrix_first ? "input \"mid.ids\": given beside \"items\", want one form of it"
                           : "input \"items\": given beside \"mid.ids\", want one form of it");
  }
  ModelInferRequest request = Raw();
  request.mutable_inputs(0)->set_name("items");
  Add(request, "mid.values", "FP32", {3});
  request.add_raw_input_contents(Bytes<float>({1, 1, 1}));
  EXPECT_EQ(Error(request), "input \"mid.values\": given beside \"items\", want one form of it");
  request = Raw();
  request.mutable_inputs(0)->set_name("items");
  Add(request, "items", "INT64", {3});
  request.add_raw_input_contents(Bytes<int64_t>({12, 10, 11}));
  EXPECT_EQ(Error(request), "input \"items\": given twice");
}

TEST_F(KserveCodecTest, ParametersAreRefused) {
  ModelInferRequest request = Raw();
  (*request.mutable_parameters())["priority"].set_int64_param(1);
  EXPECT_EQ(Error(request), "parameter \"priority\": unknown, want none");
  request = Raw();
  (*request.mutable_inputs(1)->mutable_parameters())["x"].set_bool_param(true);
  EXPECT_EQ(Error(request), "input \"price\": parameter \"x\": unknown, want none");
  request = Raw();
  auto& output = *request.add_outputs();
  output.set_name("score");
  (*output.mutable_parameters())["classification"].set_int64_param(1);
  EXPECT_EQ(Error(request), "output \"score\": parameter \"classification\": unknown, want none");
  request = Raw();
  request.set_id(std::string(129, 'x'));
  EXPECT_EQ(Error(request), "id: 129 bytes, want at most 128");
}

TEST_F(KserveCodecTest, MetadataHasMinusOneForWhatVaries) {
  inference::ModelMetadataResponse metadata;
  DescribeModel(model_->info(), metadata);
  EXPECT_EQ(metadata.name(), "tiny");
  EXPECT_EQ(metadata.platform(), "ulf");
  ASSERT_EQ(metadata.inputs_size(), 8);
  EXPECT_EQ(metadata.inputs(3).name(), "mid.ids");
  EXPECT_EQ(metadata.inputs(3).datatype(), "INT64");
  EXPECT_THAT(metadata.inputs(3).shape(), ::testing::ElementsAre(-1));
  ASSERT_EQ(metadata.outputs_size(), 2);
  EXPECT_THAT(metadata.outputs(0).shape(), ::testing::ElementsAre(-1, 2));
  EXPECT_THAT(metadata.outputs(1).shape(), ::testing::ElementsAre(1, 2));
}

TEST_F(KserveCodecTest, CountRowsIsTheNumberOfAds) {
  EXPECT_EQ(CountRows(Raw(), *model_, limits_), 3);
  EXPECT_EQ(CountRows(ModelInferRequest(), *model_, limits_), 1);
}

TEST_F(KserveCodecTest, CountRowsIsByShapesOnlyWhereValuesAreToCome) {
  ModelInferRequest request;
  request.add_inputs()->set_name("uid.ids");
  request.mutable_inputs(0)->add_shape(64 * 1024);
  request.add_raw_input_contents(std::string(8 * 64 * 1024, '\0'));
  const int64_t rows = CountRows(request, *model_, limits_);
  EXPECT_GT(rows, 100);
  EXPECT_EQ(CountRowsByShapes(request, *model_, limits_), rows);
  request.clear_raw_input_contents();
  EXPECT_EQ(CountRowsByShapes(request, *model_, limits_), rows);
  // Who only says that there are many must not fill the queue.
  EXPECT_EQ(CountRows(request, *model_, limits_), 1);
  request.mutable_inputs(0)->set_shape(0, INT64_MAX);
  EXPECT_EQ(CountRows(request, *model_, limits_), 1);
}

TEST(KserveVersion, IsAPositiveNumberOrNothing) {
  EXPECT_EQ(ChoiceOf("m", "")->version, std::nullopt);
  EXPECT_EQ(ChoiceOf("m", "12")->version, 12);
  for (const char* bad : {"0", "-1", "latest", "1.0", "+1", " 1", "1 ", "01"}) {
    EXPECT_EQ(ChoiceOf("m", bad).status().message(),
              "model version: \"" + std::string(bad) + "\", want a positive number or nothing");
  }
  EXPECT_EQ(ChoiceOf("", "1").status().message(), "model name: empty");
}

}  // namespace
}  // namespace ulfd::server
