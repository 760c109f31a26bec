// delta.textproto, beside a table file and a list of ids, on top of the tests' tiny model; and such
// lists.
// SPDX-License-Identifier: Apache-2.0
#include "engine/directory/delta_directory.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "proto/delta.pb.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/proto_mutator.h"
#include "tests/testing/delta_files.h"
#include "tests/testing/tiny_model.h"

namespace {

using namespace ulfd::engine;

const std::vector<std::string>& Names() {
  static const auto* const names = new std::vector<std::string>{
      "mid_table", "uid_table", "put", "ids", "w", "delta.textproto", "..", "/dev/zero"};
  return *names;
}

const Model& Base(const std::string& directory) {
  static const Model* const model = [&] {
    UseOneThread();
    ulfd::testing::WriteTinyModel(directory);
    ulfd::testing::WriteDelta(directory, 1, "", {{"put", {{11, {5, 0}}, {13, {6, 0}}}}},
                              {{"ids", "10\n12\n"}, {"w", ulfd::testing::kTinyWeights}});
    auto loaded = Model::Load({.directory = directory});
    if (!loaded.ok()) ulfd::fuzz::Fail(loaded.status().ToString());
    return loaded->release();
  }();
  return *model;
}

}  // namespace

ULFD_FUZZ_PROTO(ulfd::model::v1::DeltaManifest, ulfd::fuzz::ProtoForm::kText, Names())

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string* const directory = new std::string(ulfd::fuzz::EmptyScratch("delta/1"));
  const Model& base = Base(*directory);
  const absl::string_view text = ulfd::fuzz::AsText(data, size);
  if (const auto ids = ParseIds(text, "ids"); !ids.ok()) ulfd::fuzz::CheckMessage(ids.status());
  ulfd::fuzz::WriteScratch("delta/1/deltas/1/delta.textproto", text);
  const DeltasResult result = base.WithDeltas({{1, EpochDirectory(*directory, 1)}});
  for (const absl::Status& status : result.statuses) {
    if (!status.ok()) ulfd::fuzz::CheckMessage(status);
  }
  if (base.info().epoch != 0) ulfd::fuzz::Fail("a delta changed the model below it");
  if (result.model != nullptr && result.model->info().epoch != 1) {
    ulfd::fuzz::Fail("a delta was applied that is not there");
  }
  return 0;
}
