// model.textproto, beside the files of the tests' tiny model.
// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/onednn.h"
#include "proto/model_manifest.pb.h"
#include "tests/fuzz/bounded_load.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/proto_mutator.h"
#include "tests/testing/tiny_model.h"

namespace {

const std::vector<std::string>& Names() {
  static const auto* const names = new std::vector<std::string>{
      "price",   "mask",       "score", "user_vec", "uid_table",     "mid_table",
      "uid_vec", "uid.ids",    "user",  "ad",       "graph_ulf.txt", "user.conf",
      "..",      "weights.pb", "mid",   "/dev/zero"};
  return *names;
}

}  // namespace

ULFD_FUZZ_PROTO(ulfd::model::v1::ModelManifest, ulfd::fuzz::ProtoForm::kText, Names())

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string* const directory = [] {
    ulfd::engine::UseOneThread();
    auto* const path = new std::string(ulfd::fuzz::EmptyScratch("manifest/1"));
    ulfd::testing::WriteTinyModel(*path);
    return path;
  }();
  ulfd::fuzz::WriteScratch("manifest/1/model.textproto", ulfd::fuzz::AsText(data, size));
  ulfd::fuzz::LoadBounded(*directory);
  return 0;
}
