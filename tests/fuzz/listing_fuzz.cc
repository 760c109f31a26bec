// Listings of web servers and object stores, for ulf sync.
// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "tools/sync/listing.h"

namespace {

void CheckEntries(const std::vector<ulfd::tools::RemoteEntry>& entries, bool sizes) {
  for (const ulfd::tools::RemoteEntry& entry : entries) {
    if (!ulfd::tools::CheckName(entry.name).ok()) ulfd::fuzz::Fail("a name that is none");
    const bool file = entry.kind == ulfd::tools::RemoteEntry::Kind::kFile;
    if (sizes && file && entry.bytes < 0) ulfd::fuzz::Fail("a file without a size");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text = ulfd::fuzz::AsText(data, size);
  const auto page = ulfd::tools::ParseIndexPage(text);
  if (page.ok()) {
    CheckEntries(*page, false);
  } else {
    ulfd::fuzz::CheckMessage(page.status());
  }
  const auto objects = ulfd::tools::ParseObjectPage(text, "p/");
  if (objects.ok()) {
    CheckEntries(objects->entries, true);
  } else {
    ulfd::fuzz::CheckMessage(objects.status());
  }
  return 0;
}
