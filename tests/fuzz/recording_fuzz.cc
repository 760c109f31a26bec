// Recording files.  An even first byte: the rest is the file.  An odd one: the rest is cut into
// payloads at 0xff bytes, and these get the headers that they should have.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/recording/recording_file.h"
#include "base/recording/recording_reader.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulfd::recording;
  if (size == 0) return 0;
  const absl::string_view rest = ulfd::fuzz::AsText(data + 1, size - 1);
  std::string content(rest);
  if (data[0] % 2 == 1) {
    content = std::string(kFileMagic);
    for (absl::string_view payload : absl::StrSplit(rest, '\xff')) {
      absl::StrAppend(&content, RecordHeader(payload), payload);
    }
  }
  auto reader = RecordingReader::Open(ulfd::fuzz::WriteScratch("r/model/1.ulfrec", content));
  if (!reader.ok()) {
    ulfd::fuzz::CheckMessage(reader.status());
    return 0;
  }
  Recording record;
  // A record takes 16 bytes at least, so that a reader that goes on for longer goes round.
  for (size_t records = 0;; ++records) {
    const auto next = reader->Next(&record);
    if (!next.ok()) ulfd::fuzz::CheckMessage(next.status());
    if (!next.ok() || !*next) break;
    if (records > content.size() / kRecordHeaderBytes) ulfd::fuzz::Fail("more records than fit");
  }
  const Damage& damage = reader->damage();
  if (damage.records < 0 || damage.tail_bytes < 0 ||
      damage.tail_bytes > static_cast<int64_t>(content.size())) {
    ulfd::fuzz::Fail("damage of an impossible size");
  }
  return 0;
}
