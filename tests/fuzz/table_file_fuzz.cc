// Table files.  The checksum of the header is set right, so that what it says is read; the first
// byte chooses what is done about missing ids.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include "engine/embedding/pooling.h"
#include "engine/embedding/table_file.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace ulfd::engine;

std::string WithChecksum(const uint8_t* data, size_t size) {
  std::string content(reinterpret_cast<const char*>(data), size);
  TableFileHeader header;
  if (size < sizeof header) return content;
  std::memcpy(&header, content.data(), sizeof header);
  header.checksum = ChecksumOf(header);
  std::memcpy(content.data(), &header, sizeof header);
  return content;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string path = ulfd::fuzz::WriteScratch("table.ulft", WithChecksum(data + 1, size - 1));
  const absl::Status good = VerifyTableFile(path, [](uint64_t, uint64_t) {});
  if (!good.ok()) ulfd::fuzz::CheckMessage(good);
  const auto table = EmbeddingTable::Load(
      "t", path, {.missing_keys = static_cast<MissingKeys>(data[0] % 4), .default_id = 1});
  if (!table.ok()) {
    ulfd::fuzz::CheckMessage(table.status());
    return 0;
  }
  // Whatever a lookup leads to can be read to its end, by the loops of pooling, too.
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 64; ++i) ids.push_back((*table)->Sample(i).value_or(i));
  const std::vector<int32_t> segments = {64};
  std::vector<float> out(static_cast<size_t>((*table)->dim()));
  const PoolingOutput output{{.dim = (*table)->dim()}, out.data(), (*table)->dim()};
  std::vector<char> scratch(ids.size() * kPoolingScratchBytes);
  int64_t missing = 0;
  size_t failed = 0;
  const FeatureJob job{&**table, {ids, nullptr, segments}, {&output, 1}, &missing};
  Pace pace;
  const absl::Status pooled = PoolFeatures({&job, 1}, scratch.data(), pace, &failed);
  if (!pooled.ok()) ulfd::fuzz::CheckMessage(pooled);
  if (missing < 0 || missing > 64) ulfd::fuzz::Fail("more ids are missing than there are");
  return 0;
}
