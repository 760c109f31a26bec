// Protobuf messages read from text or binary files, with errors that say where.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_WEIGHTS_PROTO_FILE_H_
#define ULFD_ENGINE_WEIGHTS_PROTO_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace google::protobuf {
class Descriptor;
class Message;
}  // namespace google::protobuf

namespace ulfd::engine {

enum class ProtoFormat { kDetect, kText, kBinary };

// kText if `content` could be protobuf text: no control characters but white space.  An empty file
// is text.  A binary message of this project always holds a tag or a length below 32.
ProtoFormat DetectProtoFormat(absl::string_view content);

// What somebody may have meant whom protobuf's parser told `error`: "; did you mean "name"?" of an
// unknown field, "; want A or B" of a value that an enum lacks; "" for other errors.  `root`: what
// was parsed.
std::string WhatWasMeant(absl::string_view error, const google::protobuf::Descriptor& root);

// Parses text into `message`.  INVALID_ARGUMENT "SOURCE:LINE:COLUMN: ..." (both from 1) for syntax
// errors, unknown fields and enum values, wrong types, a field given twice, and missing required
// fields (which it names; the position is that of the message around them).
absl::Status ParseTextProto(absl::string_view text, absl::string_view source,
                            google::protobuf::Message& message);

// Parses the wire format into `message`.  INVALID_ARGUMENT "SOURCE: ..." for truncated or broken
// content, unknown fields and missing required fields.  Limit: 2 GiB, that of protobuf.
absl::Status ParseBinaryProto(absl::string_view bytes, absl::string_view source,
                              google::protobuf::Message& message);

// Of a message that was parsed otherwise: INVALID_ARGUMENT "SOURCE: ..." names a string that is not
// UTF-8.
absl::Status CheckStrings(const google::protobuf::Message& message, absl::string_view source);

// Reads a file by one of the two above; returns the format that it had.  INVALID_ARGUMENT, too,
// for what would take far more memory than its size.
absl::StatusOr<ProtoFormat> ReadProtoFile(const std::string& path, ProtoFormat format,
                                          google::protobuf::Message& message);
// The same from memory.
absl::StatusOr<ProtoFormat> ParseProto(absl::string_view content, absl::string_view source,
                                       ProtoFormat format, google::protobuf::Message& message);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_WEIGHTS_PROTO_FILE_H_
