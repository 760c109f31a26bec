// The daemon's state file.
// SPDX-License-Identifier: Apache-2.0
#include "base/text_file.h"
#include "proto/operator_state.pb.h"
#include "server/config/state_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/proto_mutator.h"

ULFD_FUZZ_PROTO(ulfd::state::v1::OperatorState, ulfd::fuzz::ProtoForm::kText, {})

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulfd::server;
  const std::string path =
      ulfd::fuzz::WriteScratch("state.textproto", ulfd::fuzz::AsText(data, size));
  const auto states = ReadStateFile(path);
  ulfd::fuzz::CheckMessage(states.status());
  if (!states.ok()) return 0;
  // What is written is read again, and says the same.
  const auto write = [&path](const OperatorStates& what) {
    if (!WriteStateFile(path, what).ok()) ulfd::fuzz::Fail("cannot write");
    return ulfd::ReadTextFile(path).value_or("");
  };
  const std::string text = write(*states);
  const auto again = ReadStateFile(path);
  if (!again.ok() || write(*again) != text) ulfd::fuzz::Fail("a state that is not what it says");
  return 0;
}
