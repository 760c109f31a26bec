// XDL text tables.  The first byte chooses what is done about bad lines and missing ids.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulfd::engine;
  if (size == 0) return 0;
  const TableOptions options{.missing_keys = static_cast<MissingKeys>(data[0] / 2 % 4),
                             .default_id = 1,
                             .skip_bad_lines = data[0] % 2 == 1};
  const auto table = EmbeddingTable::LoadText(
      "t", ulfd::fuzz::WriteScratch("table", ulfd::fuzz::AsText(data + 1, size - 1)), options);
  if (!table.ok()) {
    ulfd::fuzz::CheckMessage(table.status());
    return 0;
  }
  // Every row that a lookup finds can be read to its end.
  float sum = 0;
  int64_t found = 0;
  for (uint64_t i = 0; i < 64; ++i) {
    const auto id = (*table)->Sample(i);
    const auto* row =
        static_cast<const float*>((*table)->Find(id.value_or(static_cast<int64_t>(i))));
    if (id.has_value() && row == nullptr) ulfd::fuzz::Fail("a sampled id is not found");
    for (int64_t c = 0; row != nullptr && c < (*table)->dim(); ++c) sum += row[c];
    found += row != nullptr;
  }
  if (sum != sum || found > 64) ulfd::fuzz::Fail("a row that is no number");
  return 0;
}
