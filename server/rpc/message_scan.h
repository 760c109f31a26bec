// MessageScan: how many fields a message on the wire has, and what memory it will take, before it
// is parsed.
//
// Two bytes on the wire can make an object of a hundred: 16 MB of empty sub-messages would be
// gigabytes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_MESSAGE_SCAN_H_
#define ULFD_SERVER_RPC_MESSAGE_SCAN_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"

namespace ulfd::server {

struct MessageLimits {
  int64_t max_fields = 200000;
  int64_t max_parsed_bytes = int64_t{128} << 20;
};

struct MessagePrice {
  // Tags: a packed field is one, whatever it holds; those of sub-messages, map entries, groups and
  // unknown fields count, too.
  int64_t fields = 0;
  // Memory of the message once it is parsed, an upper estimate: buffers that grow by doubling count
  // as doubled.
  int64_t parsed_bytes = 0;
};

// Of one message type, which is linked into the program.  Immutable.
class MessageScan {
 public:
  explicit MessageScan(const google::protobuf::Descriptor& type);

  // Looks at `size` bytes.  RESOURCE_EXHAUSTED: beyond a limit, with the field that passed it;
  // INVALID_ARGUMENT: not a message.  What this accepts, the parser need not.
  absl::StatusOr<MessagePrice> Price(google::protobuf::io::ZeroCopyInputStream& bytes, int size,
                                     const MessageLimits& limits) const;

 private:
  class Walk;
  enum class Kind { kUnknown, kNumber, kText, kMessage };
  struct Field {
    Kind kind = Kind::kUnknown;
    bool repeated = false;
    int wire = 0;       // Of kNumber: the wire type of one.
    int64_t bytes = 0;  // In memory: one number, an empty text, an empty message.
    size_t type = 0;    // Of kMessage: index into types_.
  };
  struct Type {
    const google::protobuf::Descriptor* descriptor;
    std::vector<Field> fields;  // By number.
  };
  using Indices = std::map<const google::protobuf::Descriptor*, size_t>;
  size_t Add(const google::protobuf::Descriptor& type, Indices& indices);

  std::vector<Type> types_;  // The first one is that of the message itself.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_MESSAGE_SCAN_H_
