// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/message_scan.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"

namespace ulfd::server {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;
using WireFormat = pb::internal::WireFormatLite;

// What the allocator adds to an object of its own.
constexpr int64_t kAllocation = 16;
// A pointer in a vector that grows by doubling.
constexpr int64_t kPointer = 2 * sizeof(void*);
constexpr int64_t kText = sizeof(std::string) + kAllocation;
// Of a node in a map, beside key and value.
constexpr int64_t kMapNode = 64;
// Unknown fields are kept: a tag and a value, in a vector that grows by doubling.
constexpr int64_t kUnknownField = int64_t{2} * 16;
// As the parser's.
constexpr int kMaxDepth = 100;

// Room for `count` numbers of a repeated field: an array that doubles when it is full, however the
// numbers come, and its header.
int64_t ArrayBytes(int64_t count, int64_t bytes) {
  constexpr int64_t kHeader = 8;
  return count == 0 ? 0 : 2 * (count * bytes + kHeader);
}

int64_t NumberBytes(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return 1;
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return 8;
    default:
      return 4;
  }
}

// One number, an empty text or an empty message of the field, in memory.
int64_t OwnBytes(const FieldDescriptor& field) {
  const int64_t pointer = field.is_repeated() ? kPointer : 0;
  if (field.is_map()) {  // Entries have no class of their own.
    const pb::Descriptor& entry = *field.message_type();
    return kMapNode + kAllocation + pointer + OwnBytes(*entry.map_key()) +
           OwnBytes(*entry.map_value());
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return kAllocation + pointer +
             static_cast<int64_t>(pb::MessageFactory::generated_factory()
                                      ->GetPrototype(field.message_type())
                                      ->SpaceUsedLong());
    case FieldDescriptor::CPPTYPE_STRING:
      return kText + pointer;
    default:
      return NumberBytes(field);
  }
}

WireFormat::WireType WireTypeOf(const FieldDescriptor& field) {
  return WireFormat::WireTypeForFieldType(static_cast<WireFormat::FieldType>(field.type()));
}

}  // namespace

MessageScan::MessageScan(const pb::Descriptor& type) {
  Indices indices;
  Add(type, indices);
}

size_t MessageScan::Add(const pb::Descriptor& type, Indices& indices) {
  const auto [it, is_new] = indices.emplace(&type, types_.size());
  if (!is_new) return it->second;
  const size_t index = it->second;
  types_.push_back({&type, {}});
  std::vector<Field> fields;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& descriptor = *type.field(i);
    const auto number = static_cast<size_t>(descriptor.number());
    if (fields.size() <= number) fields.resize(number + 1);
    Field field;
    field.repeated = descriptor.is_repeated();
    // An entry of a map has room for its key and value before they come.
    field.bytes = type.options().map_entry() ? 0 : OwnBytes(descriptor);
    if (descriptor.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      field.kind = Kind::kMessage;
      field.type = Add(*descriptor.message_type(), indices);
    } else if (descriptor.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      field.kind = Kind::kText;
    } else {
      field.kind = Kind::kNumber;
      field.wire = WireTypeOf(descriptor);
    }
    fields[number] = field;
  }
  types_[index].fields = std::move(fields);
  return index;
}

// One message on its way.
class MessageScan::Walk {
 public:
  Walk(const MessageScan& scan, pb::io::ZeroCopyInputStream& bytes, int size,
       const MessageLimits& limits)
      : scan_(scan), in_(&bytes), limits_(limits) {
    in_.PushLimit(size);
  }

  absl::StatusOr<MessagePrice> Price() {
    if (Message(&scan_.types_[0], kMaxDepth)) return price_;
    if (!error_.ok()) return error_;
    return InvalidArgument("not a message of type ", scan_.types_[0].descriptor->full_name(),
                           ": wrong at byte ", in_.CurrentPosition());
  }

 private:
  // Fields up to the end, all of them unknown without a type.  false: it is over, with error_ or
  // because of wrong bytes.
  bool Message(const Type* type, int depth) {
    while (const uint32_t tag = in_.ReadTag()) {
      if (WireFormat::GetTagWireType(tag) == WireFormat::WIRETYPE_END_GROUP) return false;
      if (!OneField(type, tag, depth)) return false;
    }
    return in_.ConsumedEntireMessage();
  }

  bool Group(uint32_t start, int depth) {
    const uint32_t end =
        WireFormat::MakeTag(WireFormat::GetTagFieldNumber(start), WireFormat::WIRETYPE_END_GROUP);
    while (const uint32_t tag = in_.ReadTag()) {
      if (tag == end) return true;
      if (WireFormat::GetTagWireType(tag) == WireFormat::WIRETYPE_END_GROUP) return false;
      if (!OneField(nullptr, tag, depth)) return false;
    }
    return false;
  }

  bool OneField(const Type* type, uint32_t tag, int depth) {
    static const Field kNone;
    const auto number = static_cast<uint32_t>(WireFormat::GetTagFieldNumber(tag));
    if (number == 0 || depth == 0) return false;
    const bool known = type != nullptr && number < type->fields.size();
    const Field& field = known ? type->fields[number] : kNone;
    ++price_.fields;
    if (!Value(field, WireFormat::GetTagWireType(tag), tag, depth)) return false;
    return Check(type, number);
  }

  bool Value(const Field& field, WireFormat::WireType wire, uint32_t tag, int depth) {
    uint64_t ignored64 = 0;
    uint32_t ignored32 = 0;
    const bool number_here = field.kind == Kind::kNumber && wire == field.wire;
    const int64_t single = !number_here     ? kUnknownField
                           : field.repeated ? ArrayBytes(1, field.bytes)
                                            : 0;
    switch (wire) {
      case WireFormat::WIRETYPE_VARINT:
        Charge(single);
        return in_.ReadVarint64(&ignored64);
      case WireFormat::WIRETYPE_FIXED64:
        Charge(single);
        return in_.ReadLittleEndian64(&ignored64);
      case WireFormat::WIRETYPE_FIXED32:
        Charge(single);
        return in_.ReadLittleEndian32(&ignored32);
      case WireFormat::WIRETYPE_START_GROUP:
        Charge(kUnknownField + kAllocation + kPointer);
        return Group(tag, depth - 1);
      case WireFormat::WIRETYPE_LENGTH_DELIMITED:
        return Delimited(field, depth);
      default:
        return false;
    }
  }

  bool Delimited(const Field& field, int depth) {
    int size = 0;
    if (!in_.ReadVarintSizeAsInt(&size) || size > in_.BytesUntilLimit()) return false;
    switch (field.kind) {
      case Kind::kMessage: {
        Charge(field.bytes);
        const auto limit = in_.PushLimit(size);
        if (!Message(&scan_.types_[field.type], depth - 1)) return false;
        in_.PopLimit(limit);
        return true;
      }
      case Kind::kNumber: {
        if (!field.repeated) break;  // The parser knows it not.
        const bool varints = field.wire == WireFormat::WIRETYPE_VARINT;
        int64_t count = size / field.bytes;
        if (varints && !CountVarints(size, count)) return false;
        Charge(ArrayBytes(count, field.bytes));
        return varints || in_.Skip(size);
      }
      case Kind::kText:
        Charge(field.bytes + size);
        return in_.Skip(size);
      case Kind::kUnknown:
        break;
    }
    Charge(kUnknownField + kText + size);
    return in_.Skip(size);
  }

  // Reads so many bytes; each varint ends with the only byte of it that has no high bit.
  bool CountVarints(int size, int64_t& count) {
    count = 0;
    while (size > 0) {
      const void* data = nullptr;
      int here = 0;
      if (!in_.GetDirectBufferPointer(&data, &here)) return false;
      here = std::min(here, size);
      const auto* bytes = static_cast<const uint8_t*>(data);
      int i = 0;
      for (; i + 8 <= here; i += 8) {
        uint64_t word;
        std::memcpy(&word, bytes + i, sizeof(word));
        // A 1 in each byte without a high bit; the product has their sum on top.
        constexpr uint64_t kOnes = 0x0101010101010101;
        count += static_cast<int64_t>(((~word >> 7 & kOnes) * kOnes) >> 56);
      }
      for (; i < here; ++i) count += bytes[i] < 0x80;
      size -= here;
      if (!in_.Skip(here)) return false;
    }
    return true;
  }

  void Charge(int64_t bytes) { price_.parsed_bytes += bytes; }

  bool Check(const Type* type, uint32_t number) {
    if (price_.fields <= limits_.max_fields && price_.parsed_bytes <= limits_.max_parsed_bytes) {
      return true;
    }
    if (!error_.ok()) return false;  // A field within this one was it.
    const FieldDescriptor* field =
        type == nullptr ? nullptr : type->descriptor->FindFieldByNumber(static_cast<int>(number));
    const std::string name =
        field != nullptr  ? field->full_name()
        : type != nullptr ? absl::StrCat("field ", number, " of ", type->descriptor->full_name())
                          : absl::StrCat("field ", number, " of a group");
    error_ = ResourceExhausted(
        price_.fields > limits_.max_fields
            ? absl::StrCat(name, ": the message has more than ", limits_.max_fields,
                           " fields (limits.max_request_fields)")
            : absl::StrCat(name, ": parsed, the message would take ", price_.parsed_bytes,
                           " bytes up to here, limit ", limits_.max_parsed_bytes,
                           " (8 times limits.max_message_bytes)"));
    return false;
  }

  const MessageScan& scan_;
  pb::io::CodedInputStream in_;
  const MessageLimits limits_;
  MessagePrice price_;
  absl::Status error_;
};

absl::StatusOr<MessagePrice> MessageScan::Price(pb::io::ZeroCopyInputStream& bytes, int size,
                                                const MessageLimits& limits) const {
  return Walk(*this, bytes, size, limits).Price();
}

}  // namespace ulfd::server
