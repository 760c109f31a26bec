// Headers of npy arrays, and an npz that holds the input as its only member: an archive's checksums
// would stop nearly every damaged byte before our code sees it.
// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/weights/npy.h"
#include "engine/weights/npz.h"
#include "tests/fuzz/fuzz.h"

namespace {

std::string Little(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

// A zip archive of one stored member.
std::string Archive(absl::string_view name, absl::string_view content) {
  const auto crc = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
  const auto size = static_cast<uint32_t>(content.size());
  const std::string common =
      absl::StrCat(Little(20, 2), Little(0, 2), Little(0, 2), Little(0, 2), Little(0x21, 2),
                   Little(crc, 4), Little(size, 4), Little(size, 4),
                   Little(static_cast<uint32_t>(name.size()), 2), Little(0, 2));
  const std::string local = absl::StrCat("PK\3\4", common, name, content);
  const std::string central =
      absl::StrCat("PK\1\2", Little(20, 2), common, Little(0, 6), Little(0, 4), Little(0, 4), name);
  return absl::StrCat(local, central, "PK\5\6", Little(0, 4), Little(1, 2), Little(1, 2),
                      Little(static_cast<uint32_t>(central.size()), 4),
                      Little(static_cast<uint32_t>(local.size()), 4), Little(0, 2));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulfd::engine;
  const absl::string_view text = ulfd::fuzz::AsText(data, size);
  if (const auto header = ParseNpyText(text); header.ok()) {
    ulfd::fuzz::CheckMessage(ArrayBytes(header->dims, header->type).status());
  } else {
    ulfd::fuzz::CheckMessage(header.status());
  }
  const auto arrays = ReadNpz(ulfd::fuzz::WriteScratch("one.npz", Archive("a.npy", text)));
  if (!arrays.ok()) {
    ulfd::fuzz::CheckMessage(arrays.status());
    return 0;
  }
  for (const auto& [name, array] : *arrays) {
    if (array.elements() * static_cast<int64_t>(SizeOf(array.type)) !=
        static_cast<int64_t>(array.bytes.size())) {
      ulfd::fuzz::Fail("an array whose bytes are not those of its shape");
    }
    array.ToFloat32();
    array.ToInt64();
  }
  return 0;
}
