// What the fuzzers share: files of their own, texts whole, and a check that stops.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_FUZZ_FUZZ_H_
#define ULFD_TESTS_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ulfd::fuzz {

inline absl::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A directory of this process, below TMPDIR, removed when the process ends in peace.
const std::string& Scratch();
// Writes a file in Scratch(), folders included, and returns its path.
std::string WriteScratch(absl::string_view name, absl::string_view content);
// Empties Scratch()/NAME and returns its path; the directory exists then.
std::string EmptyScratch(absl::string_view name);

// What a stranger reads of an error must not be broken, huge or silent: the message is valid UTF-8,
// is there, and has at most 64 KiB; else the process stops.
void CheckMessage(const absl::Status& status);

// Prints `what` and stops, so that the input becomes a finding.
[[noreturn]] void Fail(absl::string_view what);

}  // namespace ulfd::fuzz

#endif  // ULFD_TESTS_FUZZ_FUZZ_H_
