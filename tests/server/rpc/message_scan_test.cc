// What a message costs, seen before it is parsed.
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/message_scan.h"

#include <gmock/gmock.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"
#include "proto/tf_serving.pb.h"

namespace ulfd::server {
namespace {

namespace pb = google::protobuf;
namespace v1 = ulfd::v1;
using ::testing::HasSubstr;

const MessageLimits kLoose = {.max_fields = 1 << 30, .max_parsed_bytes = int64_t{1} << 40};

// In pieces of so many bytes, as gRPC has them.
template <typename Message>
absl::StatusOr<MessagePrice> Price(const std::string& bytes, const MessageLimits& limits = kLoose,
                                   int piece = 7) {
  static const MessageScan scan(*Message::descriptor());
  pb::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()), piece);
  return scan.Price(stream, static_cast<int>(bytes.size()), limits);
}

std::string Repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

v1::PredictRequest SmallRequest() {
  v1::PredictRequest request;
  request.mutable_model()->set_name("din");
  v1::Feature& ids = *request.add_ad_features();
  ids.set_name("item");
  for (int i = 0; i < 1000; ++i) ids.mutable_sparse()->add_ids(i * 1000);
  v1::Feature& dense = *request.add_ad_features();
  dense.set_name("ctx");
  dense.mutable_dense()->mutable_floats()->Resize(1024, 0.5F);
  return request;
}

TEST(MessageScanTest, APackedFieldIsOne) {
  const auto price = Price<v1::PredictRequest>(SmallRequest().SerializeAsString());
  ASSERT_TRUE(price.ok()) << price.status();
  // model, model.name; twice: the feature, its name, its kind, the numbers.
  EXPECT_EQ(price->fields, 10);
}

TEST(MessageScanTest, TheMemoryIsThatOfTheParsedMessage) {
  v1::PredictRequest empty_features, names, tensors;
  for (int i = 0; i < 10000; ++i) {
    empty_features.add_ad_features();
    names.add_outputs(i % 2 == 0 ? "" : std::string(100, 'x'));
    tensors.add_user_features()->mutable_dense();
  }
  for (const v1::PredictRequest& request : {SmallRequest(), empty_features, names, tensors}) {
    const std::string bytes = request.SerializeAsString();
    const auto price = Price<v1::PredictRequest>(bytes);
    ASSERT_TRUE(price.ok()) << price.status();
    v1::PredictRequest parsed;
    ASSERT_TRUE(parsed.ParseFromString(bytes));
    const size_t used = parsed.SpaceUsedLong() - v1::PredictRequest().SpaceUsedLong();
    EXPECT_GE(static_cast<size_t>(price->parsed_bytes), used);
    EXPECT_LE(static_cast<size_t>(price->parsed_bytes), 3 * used);
  }
}

TEST(MessageScanTest, EntriesOfMapsHoldAKeyAndAValueThatDoNotCome) {
  using Infer = inference::ModelInferRequest;
  using Tf = tensorflow::serving::PredictRequest;
  std::string parameters, inputs;
  for (int i = 0; i < 1000; ++i) {
    const std::string key = absl::StrCat(1000 + i);
    parameters += absl::StrCat("\x22\x06\x0a\x04", key);  // ModelInferRequest.parameters
    inputs += absl::StrCat("\x12\x06\x0a\x04", key);      // PredictRequest.inputs
  }
  // A value without a key, and neither.
  const std::string value = "\x12\x04\x12\x02\x08\x0b", neither("\x12\x00", 2);
  const auto check = [](const std::string& bytes, auto parsed) {
    const auto empty = parsed.SpaceUsedLong();
    ASSERT_TRUE(parsed.ParseFromString(bytes));
    const auto price = Price<decltype(parsed)>(bytes);
    ASSERT_TRUE(price.ok()) << price.status();
    EXPECT_GE(static_cast<size_t>(price->parsed_bytes), parsed.SpaceUsedLong() - empty);
  };
  check(parameters, Infer());
  for (const std::string& bytes : {inputs, value, neither}) check(bytes, Tf());
}

// Two bytes: field `number`, a message or text of no bytes.
std::string Empty(int number) { return {static_cast<char>(number << 3 | 2), '\0'}; }

// The field `number`, which holds `bytes`.
std::string Within(int number, const std::string& bytes) {
  std::string text;
  {
    pb::io::StringOutputStream stream(&text);
    pb::io::CodedOutputStream out(&stream);
    out.WriteTag(static_cast<uint32_t>(number << 3 | 2));
    out.WriteVarint32(static_cast<uint32_t>(bytes.size()));
    out.WriteString(bytes);
  }
  return text;
}

TEST(MessageScanTest, TooManyFieldsAreRefusedByName) {
  using Infer = inference::ModelInferRequest;
  const MessageLimits limits = {.max_fields = 1000, .max_parsed_bytes = int64_t{1} << 40};
  const auto error = [](const absl::StatusOr<MessagePrice>& price) {
    EXPECT_EQ(price.status().code(), absl::StatusCode::kResourceExhausted) << price.status();
    return std::string(price.status().message());
  };
  const auto predict = [&](const std::string& bytes) {
    return error(Price<v1::PredictRequest>(bytes, limits));
  };
  const auto infer = [&](const std::string& bytes) { return error(Price<Infer>(bytes, limits)); };
  EXPECT_TRUE(Price<v1::PredictRequest>(Repeat(Empty(3), 1000), limits).ok());
  EXPECT_EQ(predict(Repeat(Empty(3), 1001)),
            "ulfd.v1.PredictRequest.ad_features: the message has more than 1000 fields "
            "(limits.max_request_fields)");
  EXPECT_THAT(predict(Repeat(Empty(4), 1001)), HasSubstr("PredictRequest.outputs"));
  // Numbers that are not packed.
  EXPECT_THAT(predict(Within(3, Within(2, Repeat("\x08\x01", 1001)))),
              HasSubstr("SparseFeature.ids"));
  EXPECT_THAT(infer(Repeat(Empty(5), 1001)), HasSubstr("ModelInferRequest.inputs"));
  EXPECT_THAT(infer(Repeat(Empty(4), 1001)), HasSubstr("ModelInferRequest.parameters"));
  EXPECT_THAT(infer(Within(5, Repeat(Empty(4), 1001))), HasSubstr("InferInputTensor.parameters"));
  EXPECT_THAT(infer(Within(5, Within(5, Repeat(Empty(8), 1001)))), HasSubstr("bytes_contents"));
  // A message that is given again and again becomes one, and costs as many.
  EXPECT_THAT(predict(Repeat(Empty(1), 1001)), HasSubstr("PredictRequest.model"));
  // Unknown ones: varints, texts, groups, and what is in a group.
  EXPECT_THAT(predict(Repeat("\x78\x01", 1001)), HasSubstr("field 15 of ulfd.v1.PredictRequest"));
  EXPECT_THAT(predict(Repeat(Empty(15), 1001)), HasSubstr("field 15"));
  EXPECT_THAT(predict(Repeat("\x7b\x7c", 1001)), HasSubstr("field 15"));
  EXPECT_THAT(predict("\x7b" + Repeat("\x08\x01", 1001) + "\x7c"), HasSubstr("field 1 of a group"));
  // A field number that is none here is no message either.
  EXPECT_TRUE(Price<v1::PredictRequest>(Within(15, Repeat(Empty(1), 1001)), limits).ok());
}

TEST(MessageScanTest, ManyNumbersInAPackedFieldAreMemory) {
  const MessageLimits limits = {.max_fields = 1000, .max_parsed_bytes = 100000};
  const auto ids = [&](size_t count) {
    return Price<v1::PredictRequest>(Within(3, Within(2, Within(1, std::string(count, '\1')))),
                                     limits);
  };
  EXPECT_TRUE(ids(5000).ok());
  const std::string error(ids(10000).status().message());
  EXPECT_THAT(error, HasSubstr("ulfd.v1.SparseFeature.ids: parsed, the message would take 160"));
  EXPECT_THAT(error, HasSubstr("limit 100000 (8 times limits.max_message_bytes)"));
}

TEST(MessageScanTest, NumbersTakeNoMoreThanTheirPriceHoweverTheyCome) {
  using Infer = inference::ModelInferRequest;
  // bool_contents to uint64_contents as varints of a byte, fp32_contents, fp64_contents.
  const std::pair<int, size_t> fields[] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 4}, {7, 8}};
  for (const auto& [field, bytes] : fields) {
    const auto packed = [field = field, bytes = bytes](int count) {
      return Within(field, std::string(static_cast<size_t>(count) * bytes, '\1'));
    };
    for (int count = 1; count < 140; ++count) {
      for (const std::string& contents :
           {packed(count), packed(count - 1) + packed(1), packed(1) + packed(count - 1),
            Repeat(packed(1), count)}) {
        const std::string message = Within(5, Within(5, contents));
        const auto price = Price<Infer>(message);
        ASSERT_TRUE(price.ok()) << price.status();
        Infer parsed;
        ASSERT_TRUE(parsed.ParseFromString(message));
        EXPECT_GE(static_cast<size_t>(price->parsed_bytes),
                  parsed.SpaceUsedLong() - Infer().SpaceUsedLong())
            << count << " numbers of field " << field;
      }
    }
  }
}

TEST(MessageScanTest, FieldsOfAnotherWireTypeTakeNoMoreThanTheirPrice) {
  // return_timings, request_id and model, as a varint, 64 bits, bytes and 32 bits.
  for (const int field : {7, 6, 1}) {
    for (const std::string& value :
         {std::string("\0\1", 2), std::string("\1") + std::string(8, '\1'),
          std::string("\2\x20") + std::string(32, '\xff'), std::string("\5\1\1\1\1")}) {
      std::string bytes = value;
      bytes[0] = static_cast<char>(bytes[0] | field << 3);
      bytes = Repeat(bytes, 100);
      v1::PredictRequest parsed;
      if (!parsed.ParseFromString(bytes)) continue;  // Text that is not UTF-8.
      const auto price = Price<v1::PredictRequest>(bytes);
      ASSERT_TRUE(price.ok()) << price.status();
      EXPECT_GE(static_cast<size_t>(price->parsed_bytes),
                parsed.SpaceUsedLong() - v1::PredictRequest().SpaceUsedLong())
          << field << " as " << int{value[0]};
    }
  }
}

TEST(MessageScanTest, WhatItTakesForWrongIsNoMessage) {
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "\x7b";
  for (int i = 0; i < 200; ++i) deep += "\x7c";
  for (const std::string& bytes :
       {std::string("\xff\xff\xff"), std::string("\0\0", 2), std::string("\x1a\x7f"),
        std::string("\x1a\x02\x1a"), std::string("\x7b"), std::string("\x7c"),
        std::string("\x7b\x74"), Within(3, "\x0a\x05"), deep}) {
    EXPECT_EQ(Price<v1::PredictRequest>(bytes).status().code(), absl::StatusCode::kInvalidArgument)
        << testing::PrintToString(bytes);
    EXPECT_FALSE(v1::PredictRequest().ParseFromString(bytes)) << testing::PrintToString(bytes);
  }
}

// Whatever the parser takes, the scan has to have seen whole.
TEST(MessageScanTest, ItReadsWhatTheParserReads) {
  std::mt19937 random(7);
  const std::string good = SmallRequest().SerializeAsString().substr(0, 60);
  int parsed = 0;
  const pb::LogSilencer quiet;  // Text that is not UTF-8 is said on standard error.
  for (int round = 0; round < 200000; ++round) {
    std::string bytes = good;
    bytes.resize(random() % bytes.size());
    for (int change = 0; change < 4 && !bytes.empty(); ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    v1::PredictRequest request;
    if (!request.ParsePartialFromString(bytes)) continue;
    ++parsed;
    const auto price = Price<v1::PredictRequest>(bytes, kLoose, 1 + static_cast<int>(random() % 9));
    EXPECT_TRUE(price.ok()) << price.status() << " " << testing::PrintToString(bytes);
  }
  EXPECT_GT(parsed, 1000);
}

}  // namespace
}  // namespace ulfd::server
