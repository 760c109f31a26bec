// MXNet NDArray lists.
// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/ndarray_list.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view content = ulfd::fuzz::AsText(data, size);
  ulfd::engine::IsNdarrayList(content);
  const auto arrays = ulfd::engine::ParseNdarrayList(content);
  if (!arrays.ok()) {
    ulfd::fuzz::CheckMessage(arrays.status());
    return 0;
  }
  for (const auto& [name, array] : *arrays) {
    array.ToFloat32();
    array.ToInt64();
  }
  return 0;
}
