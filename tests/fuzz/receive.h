// A message as the daemon receives it: looked at on the wire, then parsed.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_FUZZ_RECEIVE_H_
#define ULFD_TESTS_FUZZ_RECEIVE_H_

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "absl/strings/str_cat.h"
#include "server/rpc/message_scan.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/proto_mutator.h"

namespace ulfd::fuzz {

// false: the daemon would refuse it.  Stops where the message is larger than its price.
template <typename Message>
bool ReceiveMessage(const uint8_t* data, size_t size, Message& message) {
  static const auto* const scan = new server::MessageScan(*Message::descriptor());
  google::protobuf::io::ArrayInputStream stream(data, static_cast<int>(size), /*block_size=*/7);
  const auto price = scan->Price(stream, static_cast<int>(size), server::MessageLimits());
  CheckMessage(price.status());
  const bool parsed = ReadMessage(ProtoForm::kBinary, data, size, message);
  if (!price.ok()) {
    if (parsed && absl::IsInvalidArgument(price.status())) Fail("what parses is not let through");
    return false;
  }
  // The price is of what the message holds.
  const auto used = static_cast<int64_t>(message.SpaceUsedLong() - Message().SpaceUsedLong());
  if (parsed && used > price->parsed_bytes) {
    Fail(absl::StrCat("a message of ", used, " bytes, told as ", price->parsed_bytes));
  }
  return parsed;
}

}  // namespace ulfd::fuzz

#endif  // ULFD_TESTS_FUZZ_RECEIVE_H_
