// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/received_message.h"

#include <grpc/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "absl/strings/str_cat.h"
#include "server/rpc/grpc_status.h"

namespace ulfd::server {
namespace {

// Tells how the bytes are compressed, which grpc::ByteBuffer does not.
class Reader : public grpc::ProtoBufferReader {
 public:
  using grpc::ProtoBufferReader::ProtoBufferReader;
  grpc_compression_algorithm compression() { return reader()->buffer_in->data.raw.compression; }
};

}  // namespace

grpc::Status PriceMessage(grpc::ByteBuffer& bytes, const MessageScan& scan,
                          const MessageLimits& limits, MessagePrice& price) {
  Reader reader(&bytes);
  if (!reader.status().ok()) return reader.status();
  if (reader.compression() != GRPC_COMPRESS_NONE) {
    return {grpc::StatusCode::UNIMPLEMENTED,
            "the message is compressed; this server takes identity only"};
  }
  const auto priced = scan.Price(reader, static_cast<int>(bytes.Length()), limits);
  if (!priced.ok()) return ToGrpcStatus(priced.status());
  price = *priced;
  return grpc::Status::OK;
}

grpc::Status ParseMessage(grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  Reader reader(&bytes);
  if (reader.status().ok() && message.ParseFromZeroCopyStream(&reader)) return grpc::Status::OK;
  return {grpc::StatusCode::INVALID_ARGUMENT,
          absl::StrCat("not a message of type ", message.GetDescriptor()->full_name())};
}

}  // namespace ulfd::server
