// What of an answered call goes into its record.
// SPDX-License-Identifier: Apache-2.0
#include "server/recorder/call_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/recording/recording_reader.h"
#include "tests/testing/fakes.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::server {
namespace {

using recording::v1::Recording;
using ::testing::ElementsAre;

TEST(CallRecordTest, scores_made_without_late_rows_are_not_kept) {
  const TempDir dir;
  FakeClock clock;
  RecorderOptions options;
  options.directory = dir.File("recordings");
  options.share = 1;
  options.max_per_second = 100;
  options.max_file_bytes = options.max_queued_bytes = 1 << 20;
  options.max_files = 1;
  const auto recorder =
      Recorder::CreateWithoutThread(options, clock, [](const absl::Status&, int64_t) {});
  ASSERT_TRUE(recorder.ok()) << recorder.status();

  engine::ModelInfo info;
  info.name = "a";
  const AnsweredCall call{.info = info, .ads = 1, .deadline = TimePoint::max()};
  ulfd::v1::PredictResponse native;
  native.add_outputs()->set_name("y");
  RecordCall(call, ulfd::v1::PredictRequest(), native, recorder->get());
  native.set_late_ids(1);
  RecordCall(call, ulfd::v1::PredictRequest(), native, recorder->get());
  inference::ModelInferResponse open;
  open.add_outputs()->set_name("y");
  (*open.mutable_parameters())["late_ids"].set_int64_param(1);
  RecordCall(call, inference::ModelInferRequest(), open, recorder->get());
  (*recorder)->WriteQueued();

  auto reader = recording::RecordingReader::Open(dir.File("recordings/a/0000000001.ulfrec"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<int> outputs;
  for (Recording record; *reader->Next(&record);) outputs.push_back(record.outputs_size());
  EXPECT_THAT(outputs, ElementsAre(1, 0, 0));
}

}  // namespace
}  // namespace ulfd::server
