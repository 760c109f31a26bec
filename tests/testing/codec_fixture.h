// The tiny model behind the codec of one API: for tests of what is decoded, refused and answered.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_CODEC_FIXTURE_H_
#define ULFD_TESTS_TESTING_CODEC_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "server/scoring/request_decoder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_model.h"

namespace ulfd::server {

// DecodeRequest and EncodeResponse are those of the API of `Request` and `Response`.
template <typename Request, typename Response>
class CodecFixture : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    engine::UseOneThread();
    const TempDir dir;
    ulfd::testing::WriteTinyModel(dir.File("tiny/3"));
    auto model = engine::Model::Load({.directory = dir.File("tiny/3")});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  static void TearDownTestSuite() { model_.reset(); }

  absl::Status Decode(const Request& request) {
    decoded_ = {};
    return DecodeRequest(request, *model_, limits_, decoded_);
  }
  std::string Error(const Request& request,
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = Decode(request);
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }
  // Decodes, runs and encodes.
  absl::StatusOr<Response> Answer(const Request& request) {
    engine::Workspace workspace;
    engine::RunResult result;
    Response response;
    absl::Status status = Decode(request);
    if (status.ok()) status = model_->Run(decoded_.inputs, {}, workspace, result);
    if (status.ok()) {
      status = EncodeResponse(request, decoded_, model_->info(), result, response);
    }
    if (!status.ok()) return status;
    return response;
  }

  inline static std::unique_ptr<const engine::Model> model_;
  RequestLimits limits_;
  DecodedRequest decoded_;
};

}  // namespace ulfd::server

#endif  // ULFD_TESTS_TESTING_CODEC_FIXTURE_H_
