// TensorFlow Serving's tensors in every form, and the exact text of what is refused.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/tf_serving_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/scoring/kserve_codec.h"
#include "tests/testing/codec_fixture.h"

namespace ulfd::server {
namespace {

namespace tfs = tensorflow::serving;
using ::testing::HasSubstr;
using Infer = inference::ModelInferRequest;

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class TfServingCodecTest : public CodecFixture<Infer, inference::ModelInferResponse> {
 protected:
  static tfs::TensorProto Tensor(tfs::DataType dtype, const std::vector<int64_t>& shape) {
    tfs::TensorProto tensor;
    tensor.set_dtype(dtype);
    for (const int64_t size : shape) tensor.mutable_tensor_shape()->add_dim()->set_size(size);
    return tensor;
  }
  // Three ads.
  static tfs::PredictRequest Request() {
    tfs::PredictRequest request;
    request.mutable_model_spec()->set_name("tiny");
    auto& inputs = *request.mutable_inputs();
    inputs["mid.ids"] = Tensor(tfs::DT_INT64, {3});
    for (const int64_t id : {12, 10, 11}) inputs["mid.ids"].add_int64_val(id);
    inputs["price"] = Tensor(tfs::DT_FLOAT, {3, 1});
    inputs["price"].set_tensor_content(Bytes<float>({0.25, 0.5, 4}));
    inputs["uid.ids"] = Tensor(tfs::DT_INT64, {1});
    inputs["uid.ids"].add_int64_val(1);
    inputs["mask"] = Tensor(tfs::DT_INT32, {1, 2});
    inputs["mask"].add_int_val(1);  // And once more.
    return request;
  }
  absl::Status Make(tfs::PredictRequest& request, Infer& infer) {
    absl::Status described = DescribeInputs(request, infer);
    if (!described.ok()) return described;
    return FillInputs(request, *model_, limits_, infer);
  }
  absl::StatusOr<tfs::PredictResponse> Predict(tfs::PredictRequest request) {
    Infer infer;
    if (absl::Status made = Make(request, infer); !made.ok()) return made;
    const auto answer = Answer(infer);
    if (!answer.ok()) return answer.status();
    tfs::PredictResponse response;
    MakePredictResponse(*answer, response);
    return response;
  }
  std::vector<float> Scores(const tfs::PredictRequest& request) {
    const auto response = Predict(request);
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return {};
    const auto& values = response->outputs().at("score").float_val();
    return {values.begin(), values.end()};
  }
  std::string Refusal(const tfs::PredictRequest& request) {
    const auto response = Predict(request);
    EXPECT_FALSE(response.ok());
    return std::string(response.status().message());
  }
  static std::string RawOf(const Infer& infer, const std::string& name) {
    for (int i = 0; i < infer.inputs_size(); ++i) {
      if (infer.inputs(i).name() == name) return infer.raw_input_contents(i);
    }
    return "no such input";
  }
  // The price as one other tensor.
  static tfs::PredictRequest WithPrice(tfs::TensorProto tensor) {
    tfs::PredictRequest request = Request();
    (*request.mutable_inputs())["price"] = std::move(tensor);
    return request;
  }
};

TEST_F(TfServingCodecTest, AnswersLikeKServe) {
  Infer infer;
  tfs::PredictRequest request = Request();
  request.add_output_filter("score");
  const auto response = Predict(request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs_size(), 1);
  const tfs::TensorProto& score = response->outputs().at("score");
  EXPECT_EQ(score.dtype(), tfs::DT_FLOAT);
  EXPECT_EQ(score.tensor_shape().dim(0).size(), 3);
  EXPECT_EQ(response->model_spec().name(), "tiny");
  EXPECT_EQ(response->model_spec().version().value(), 3);
  ASSERT_TRUE(Make(request, infer).ok());
  EXPECT_EQ(infer.inputs_size(), 4);
  EXPECT_EQ(RawOf(infer, "mask"), Bytes<int32_t>({1, 1}));
  EXPECT_EQ(RawOf(infer, "mid.ids"), Bytes<int64_t>({12, 10, 11}));
}

TEST_F(TfServingCodecTest, TakesEveryFormOfANumber) {
  const std::vector<float> want = Scores(Request());
  ASSERT_FALSE(want.empty());
  tfs::TensorProto list = Tensor(tfs::DT_FLOAT, {3, 1});
  for (const float price : {0.25f, 0.5f, 4.f}) list.add_float_val(price);
  EXPECT_EQ(Scores(WithPrice(list)), want);
  tfs::TensorProto wide = Tensor(tfs::DT_DOUBLE, {3, 1});
  wide.set_tensor_content(Bytes<double>({0.25, 0.5, 4}));
  EXPECT_EQ(Scores(WithPrice(wide)), want);
  wide = Tensor(tfs::DT_DOUBLE, {3, 1});
  for (const double price : {0.25, 0.5, 4.}) wide.add_double_val(price);
  EXPECT_EQ(Scores(WithPrice(wide)), want);
  tfs::TensorProto half = Tensor(tfs::DT_HALF, {3, 1});
  for (const int bits : {0x3400, 0x3800, 0x4400}) half.add_half_val(bits);
  EXPECT_EQ(Scores(WithPrice(half)), want);
  half.clear_half_val();
  half.set_tensor_content(Bytes<uint16_t>({0x3400, 0x3800, 0x4400}));
  EXPECT_EQ(Scores(WithPrice(half)), want);
  tfs::TensorProto brain = Tensor(tfs::DT_BFLOAT16, {3, 1});
  for (const int bits : {0x3e80, 0x3f00, 0x4080}) brain.add_half_val(bits);
  EXPECT_EQ(Scores(WithPrice(brain)), want);
  for (const tfs::DataType dtype :
       {tfs::DT_INT32, tfs::DT_INT16, tfs::DT_INT8, tfs::DT_UINT16, tfs::DT_UINT8}) {
    tfs::PredictRequest request = Request();
    tfs::TensorProto ids = Tensor(dtype, {3});
    for (const int id : {12, 10, 11}) ids.add_int_val(id);
    (*request.mutable_inputs())["mid.ids"] = ids;
    EXPECT_EQ(Scores(request), want) << tfs::DataType_Name(dtype);
  }
  tfs::TensorProto truth = Tensor(tfs::DT_BOOL, {1, 2});
  truth.add_bool_val(true);  // And once more.
  tfs::PredictRequest request = Request();
  (*request.mutable_inputs())["mask"] = truth;
  EXPECT_EQ(Scores(request), want);
  request = Request();
  tfs::TensorProto ids = Tensor(tfs::DT_UINT32, {3});
  ids.set_tensor_content(Bytes<uint32_t>({12, 10, 11}));
  (*request.mutable_inputs())["mid.ids"] = ids;
  EXPECT_EQ(Scores(request), want);
  ids = Tensor(tfs::DT_UINT64, {3});
  for (const uint64_t id : {12, 10, 11}) ids.add_uint64_val(id);
  (*request.mutable_inputs())["mid.ids"] = ids;
  EXPECT_EQ(Scores(request), want);
}

TEST_F(TfServingCodecTest, RefusesByName) {
  EXPECT_EQ(Refusal(WithPrice(Tensor(tfs::DT_STRING, {3, 1}))),
            "input \"price\": DT_STRING, want DT_FLOAT");
  EXPECT_EQ(Refusal(WithPrice(Tensor(static_cast<tfs::DataType>(101), {3, 1}))),
            "input \"price\": dtype 101, want DT_FLOAT");
  tfs::PredictRequest request = Request();
  (*request.mutable_inputs())["mid.ids"] = Tensor(tfs::DT_FLOAT, {3});
  EXPECT_EQ(Refusal(request), "input \"mid.ids\": DT_FLOAT, want DT_INT64");
  // The rest is refused as KServe's.
  tfs::TensorProto whole = Tensor(tfs::DT_INT32, {3, 1});
  whole.add_int_val((1 << 24) + 1);
  EXPECT_EQ(Refusal(WithPrice(whole)),
            "input \"price\": element 0 is 16777217, which is no float32");
}

TEST_F(TfServingCodecTest, RefusesValuesThatTheirTypeDoesNotHave) {
  const auto refusal_of = [&](tfs::DataType dtype, int value) {
    tfs::TensorProto price = Tensor(dtype, {3, 1});
    (dtype == tfs::DT_HALF ? price.mutable_half_val() : price.mutable_int_val())->Add(value);
    return Refusal(WithPrice(price));
  };
  EXPECT_EQ(refusal_of(tfs::DT_INT8, 300), "input \"price\": value 300, which no DT_INT8 has");
  EXPECT_THAT(refusal_of(tfs::DT_INT16, -32769), HasSubstr("no DT_INT16 has"));
  EXPECT_THAT(refusal_of(tfs::DT_UINT8, -1), HasSubstr("no DT_UINT8 has"));
  EXPECT_THAT(refusal_of(tfs::DT_UINT16, 65536), HasSubstr("no DT_UINT16 has"));
  EXPECT_THAT(refusal_of(tfs::DT_HALF, -1), HasSubstr("value -1, which no DT_HALF"));
}

TEST_F(TfServingCodecTest, RefusesValuesInTheListOfAnotherType) {
  tfs::TensorProto price = Tensor(tfs::DT_FLOAT, {3, 1});
  price.add_int_val(1);
  EXPECT_EQ(Refusal(WithPrice(price)),
            "input \"price\": values in int_val, want float_val for DT_FLOAT");
  price.add_float_val(1);  // A good one beside it does not help.
  EXPECT_THAT(Refusal(WithPrice(price)), HasSubstr("values in int_val"));
  tfs::TensorProto complex = Tensor(tfs::DT_INT32, {3, 1});
  complex.GetReflection()->MutableUnknownFields(&complex)->AddVarint(9, 1);  // scomplex_val
  EXPECT_EQ(Refusal(WithPrice(complex)),
            "input \"price\": values in field 9, want int_val for DT_INT32");
}

TEST_F(TfServingCodecTest, RefusesShapesByName) {
  tfs::TensorProto many = Tensor(tfs::DT_FLOAT, {3, 1});
  for (int i = 0; i < 4; ++i) many.add_float_val(1);
  EXPECT_EQ(Refusal(WithPrice(many)), "input \"price\": 4 values, want at most 3");
  tfs::TensorProto few = Tensor(tfs::DT_FLOAT, {3, 1});
  few.set_tensor_content("12345");
  EXPECT_EQ(Refusal(WithPrice(few)), "input \"price\": 5 raw bytes, want 12 for FP32 [3, 1]");
  few.add_float_val(1);
  EXPECT_THAT(Refusal(WithPrice(few)), HasSubstr("tensor_content beside a list"));
  EXPECT_THAT(Refusal(WithPrice(Tensor(tfs::DT_FLOAT, {-3, 1}))), HasSubstr("input \"price\""));
  tfs::TensorProto vague = Tensor(tfs::DT_FLOAT, {});
  vague.mutable_tensor_shape()->set_unknown_rank(true);
  EXPECT_EQ(Refusal(WithPrice(vague)), "input \"price\": a shape of unknown rank");
  // A few bytes do not become megabytes.
  const auto huge = Predict(WithPrice(Tensor(tfs::DT_FLOAT, {2000, 1000000})));
  EXPECT_TRUE(absl::IsResourceExhausted(huge.status())) << huge.status();
  EXPECT_THAT(std::string(huge.status().message()), HasSubstr("input \"price\": 0 values"));
}

// Values are not made of what is refused for its name or its rows.
TEST_F(TfServingCodecTest, NamesAndRowsAreLookedAtBeforeValues) {
  tfs::TensorProto few = Tensor(tfs::DT_UINT8, {2001, 1});
  few.set_tensor_content("12345");
  tfs::PredictRequest request = WithPrice(few);
  EXPECT_EQ(Refusal(request), "2001 ads, want 1..2000");
  request = Request();
  (*request.mutable_inputs())["prise"] = few;
  EXPECT_THAT(Refusal(request), HasSubstr("input \"prise\": unknown; did you mean \"price\""));
}

TEST_F(TfServingCodecTest, FewValuesMayBeLeftOut) {
  limits_.max_ads = 5000;
  tfs::TensorProto price = Tensor(tfs::DT_FLOAT, {4096, 1});
  price.add_float_val(0.5);
  Infer infer;
  tfs::PredictRequest taken = WithPrice(price);  // The mask leaves out one, too.
  EXPECT_TRUE(Make(taken, infer).ok());
  price.mutable_tensor_shape()->mutable_dim(0)->set_size(4097);
  const absl::Status refused = Predict(WithPrice(price)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("want all of them: a request may leave out 4096"));
}

TEST_F(TfServingCodecTest, ModelsAreChosenByVersionOrLabel) {
  tfs::ModelSpec spec;
  EXPECT_EQ(ChoiceOf(spec).status().message(), "model name: empty");
  spec.set_name("tiny");
  spec.mutable_version()->set_value(3);
  ASSERT_TRUE(ChoiceOf(spec).ok());
  EXPECT_EQ(ChoiceOf(spec)->version, 3);
  spec.mutable_version()->set_value(0);
  EXPECT_THAT(std::string(ChoiceOf(spec).status().message()), HasSubstr("\"0\""));
  spec.set_version_label("canary");
  spec.set_signature_name("serving_default");
  ASSERT_TRUE(ChoiceOf(spec).ok());
  EXPECT_EQ(ChoiceOf(spec)->label, "canary");
  EXPECT_FALSE(ChoiceOf(spec)->version.has_value());
  spec.set_signature_name("regress");
  EXPECT_EQ(ChoiceOf(spec).status().message(),
            "signature_name: \"regress\", want \"serving_default\" or nothing");
}

TEST_F(TfServingCodecTest, DescribesTheOneSignature) {
  inference::ModelMetadataResponse model;
  DescribeModel(model_->info(), model);
  tfs::SignatureDefMap signatures;
  DescribeModel(model, signatures);
  const tfs::SignatureDef& signature = signatures.signature_def().at("serving_default");
  EXPECT_EQ(signature.inputs().at("mid.ids").dtype(), tfs::DT_INT64);
  EXPECT_EQ(signature.inputs().at("mask").dtype(), tfs::DT_INT32);
  EXPECT_EQ(signature.outputs().at("score").dtype(), tfs::DT_FLOAT);
}

}  // namespace
}  // namespace ulfd::server
