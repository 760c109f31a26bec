// Token files.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "base/text_file.h"
#include "server/security/token_table.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text = ulfd::fuzz::AsText(data, size);
  const auto read = ulfd::ReadTextFile(ulfd::fuzz::WriteScratch("tokens", text));
  if (!read.ok()) ulfd::fuzz::CheckMessage(read.status());
  if (read.ok() && *read != text) ulfd::fuzz::Fail("the file reads otherwise than it was written");
  const auto table = ulfd::server::TokenTable::Parse(text, "tokens");
  if (!table.ok()) {
    ulfd::fuzz::CheckMessage(table.status());
    return 0;
  }
  if (table->size() == 0) ulfd::fuzz::Fail("a table without tokens");
  table->Find(text);
  return 0;
}
