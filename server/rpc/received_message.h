// A message as it was received: looked at, then parsed.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_RPC_RECEIVED_MESSAGE_H_
#define ULFD_SERVER_RPC_RECEIVED_MESSAGE_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include "server/rpc/message_scan.h"

namespace ulfd::server {

// What a message is looked at for, and its price, in this order; the message itself is not parsed.
// UNIMPLEMENTED: it is compressed; otherwise as MessageScan::Price.
grpc::Status PriceMessage(grpc::ByteBuffer& bytes, const MessageScan& scan,
                          const MessageLimits& limits, MessagePrice& price);

// INVALID_ARGUMENT: it is none.
grpc::Status ParseMessage(grpc::ByteBuffer& bytes, google::protobuf::Message& message);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_RPC_RECEIVED_MESSAGE_H_
