// A recording beside a model, as it is scored and compared before the model is published.
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "proto/recording.pb.h"
#include "server/scoring/golden_check.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/proto_mutator.h"
#include "tests/fuzz/small_model.h"

ULFD_FUZZ_PROTO(ulfd::recording::v1::Recording, ulfd::fuzz::ProtoForm::kBinary,
                ulfd::fuzz::SmallModelNames())

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ulfd::engine::Model& model = ulfd::fuzz::SmallModel();
  ulfd::fuzz::WriteScratch("small/1/warmup/1.pb", ulfd::fuzz::AsText(data, size));
  std::vector<std::string> notices;
  ulfd::fuzz::CheckMessage(ulfd::server::CheckRecordings(
      model, absl::StrCat(ulfd::fuzz::Scratch(), "/small/1"), {}, {}, notices));
  return 0;
}
