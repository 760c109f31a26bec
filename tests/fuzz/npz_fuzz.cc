// Weight files of every format, told apart by their content: npz, NDArray list, ulf binary and
// text.
// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/npz.h"
#include "engine/weights/weights.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path = ulfd::fuzz::WriteScratch("weights", ulfd::fuzz::AsText(data, size));
  ulfd::fuzz::CheckMessage(ulfd::engine::ReadNpz(path).status());
  const auto weights = ulfd::engine::WeightFile::Read(path);
  if (!weights.ok()) {
    ulfd::fuzz::CheckMessage(weights.status());
    return 0;
  }
  if ((*weights)->bytes() < 0) ulfd::fuzz::Fail("negative bytes");
  (*weights)->NonFiniteArrays();
  return 0;
}
