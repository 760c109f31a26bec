// Structural changes through reflection.
// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/proto_mutator.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace ulfd::fuzz {
namespace {

namespace pb = google::protobuf;

constexpr int kMostNodes = 4096;  // Messages of an input that are looked at, or changed at a time.
constexpr int64_t kMostBytes = int64_t{1} << 20;  // Copied at a time.
constexpr int64_t kEdges[] = {0,
                              1,
                              -1,
                              2,
                              3,
                              4,
                              7,
                              8,
                              64,
                              255,
                              256,
                              1000,
                              2000,
                              2001,
                              65535,
                              65536,
                              1 << 20,
                              1 << 24,
                              1 << 30,
                              std::numeric_limits<int32_t>::max(),
                              int64_t{1} << 31,
                              int64_t{1} << 32,
                              int64_t{1} << 40,
                              int64_t{1} << 53,
                              int64_t{1} << 62,
                              std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min(),
                              std::numeric_limits<int32_t>::min(),
                              -2};
constexpr double kNumbers[] = {0,
                               -0.0,
                               1,
                               -1,
                               0.5,
                               2,
                               1e-3,
                               1e3,
                               1e9,
                               3e38,
                               -3e38,
                               1e-45,
                               1e-38,
                               16777216,
                               1e300,
                               std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()};

class Mutator {
 public:
  Mutator(uint32_t seed, std::vector<std::string> names)
      : random_(seed), names_(std::move(names)) {}

  void Mutate(pb::Message& root) {
    root_ = &root;
    steps_left_ = kMostNodes;
    bytes_left_ = kMostBytes;
    for (int changes = 1 + Below(4); changes > 0; --changes) {
      Collect(root);
      Change(*nodes_[Below(static_cast<int>(nodes_.size()))]);
    }
  }

  void Cross(const pb::Message& from, pb::Message& to) {
    Collect(const_cast<pb::Message&>(from));
    const std::vector<pb::Message*> sources = nodes_;
    Collect(to);
    pb::Message* target = nodes_[Below(static_cast<int>(nodes_.size()))];
    std::vector<const pb::Message*> fitting;
    for (const pb::Message* source : sources) {
      if (source->GetDescriptor() == target->GetDescriptor()) fitting.push_back(source);
    }
    if (fitting.empty()) return;
    const pb::Message* source = fitting[Below(static_cast<int>(fitting.size()))];
    if (Below(3) == 0) {
      target->MergeFrom(*source);
    } else {
      target->CopyFrom(*source);
    }
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  uint64_t Wide() { return uint64_t{random_()} << 32 | random_(); }

  // Every message of the input, and its strings.
  void Collect(pb::Message& root) {
    nodes_.assign(1, &root);
    strings_ = names_;
    for (size_t i = 0; i < nodes_.size() && nodes_.size() < kMostNodes; ++i) {
      pb::Message& message = *nodes_[i];
      const pb::Reflection& reflection = *message.GetReflection();
      std::vector<const pb::FieldDescriptor*> fields;
      reflection.ListFields(message, &fields);
      for (const pb::FieldDescriptor* field : fields) {
        const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
        for (int k = 0; k < count && nodes_.size() < kMostNodes; ++k) {
          if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
            nodes_.push_back(field->is_repeated()
                                 ? reflection.MutableRepeatedMessage(&message, field, k)
                                 : reflection.MutableMessage(&message, field));
          } else if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING) {
            std::string text = field->is_repeated()
                                   ? reflection.GetRepeatedString(message, field, k)
                                   : reflection.GetString(message, field);
            if (text.size() < 200) strings_.push_back(std::move(text));
          }
        }
      }
    }
  }

  void Change(pb::Message& message) {
    const pb::Reflection& reflection = *message.GetReflection();
    const pb::Descriptor& type = *message.GetDescriptor();
    if (type.field_count() == 0) return;
    // What is there is more worth changing than what is not.
    std::vector<const pb::FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    const pb::FieldDescriptor* field = fields.empty() || Below(4) == 0
                                           ? type.field(Below(type.field_count()))
                                           : fields[Below(static_cast<int>(fields.size()))];
    if (field->is_repeated()) {
      ChangeRepeated(message, field);
    } else if (reflection.HasField(message, field) && Below(6) == 0) {
      reflection.ClearField(&message, field);
    } else if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      ChangeMessage(*reflection.MutableMessage(&message, field));
    } else {
      Set(message, field, -1);
    }
  }

  void ChangeRepeated(pb::Message& message, const pb::FieldDescriptor* field) {
    const pb::Reflection& reflection = *message.GetReflection();
    const int count = reflection.FieldSize(message, field);
    const bool is_message = field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE;
    switch (count == 0 ? 0 : Below(8)) {
      case 0:  // One more, at times many.
        for (int more = Below(16) == 0 ? 100 : 1; more > 0; --more) {
          if (is_message) {
            ChangeMessage(*reflection.AddMessage(&message, field));
          } else {
            Add(message, field);
          }
        }
        return;
      case 1:
        reflection.RemoveLast(&message, field);
        return;
      case 2:  // Remove one in the middle.
        reflection.SwapElements(&message, field, Below(count), count - 1);
        reflection.RemoveLast(&message, field);
        return;
      case 3:
        reflection.SwapElements(&message, field, Below(count), Below(count));
        return;
      case 4:  // The same again.
        if (is_message) {
          const int from = Below(count);
          pb::Message* copy = reflection.AddMessage(&message, field);
          copy->CopyFrom(reflection.GetRepeatedMessage(message, field, from));
          if (Below(2) == 0) Change(*copy);
        } else {
          Add(message, field);
        }
        return;
      default:
        if (is_message) {
          ChangeMessage(*reflection.MutableRepeatedMessage(&message, field, Below(count)));
        } else {
          Set(message, field, Below(count));
        }
    }
  }

  // Another one of the same type in its place, or a change within.
  void ChangeMessage(pb::Message& message) {
    if (--steps_left_ < 0) return;
    if (Below(3) == 0) {
      Collect(
          *root_);  // What was there before may be gone: a field of a oneof takes another's place.
      const int begin = Below(static_cast<int>(nodes_.size()));
      for (size_t i = 0; i < nodes_.size(); ++i) {
        const pb::Message* other = nodes_[(begin + i) % nodes_.size()];
        if (other == &message || other->GetDescriptor() != message.GetDescriptor()) continue;
        if ((bytes_left_ -= static_cast<int64_t>(other->ByteSizeLong())) < 0) return;
        // Through a copy: one may be within the other.
        const std::unique_ptr<pb::Message> copy(other->New());
        copy->CopyFrom(*other);
        message.CopyFrom(*copy);
        return;
      }
    }
    if (++depth_ < 8) Change(message);
    --depth_;
  }

  int64_t Integer(int64_t old) {
    switch (Below(5)) {
      case 0:
        return static_cast<int64_t>(static_cast<uint64_t>(old) + 1);
      case 1:
        return static_cast<int64_t>(static_cast<uint64_t>(old) - 1);
      case 2:
        return Below(20);
      case 3:
        return Below(8) == 0 ? static_cast<int64_t>(Wide())
                             : static_cast<int64_t>(static_cast<uint64_t>(old) * 2);
      default:
        return kEdges[Below(std::size(kEdges))];
    }
  }
  double Number(double old) {
    switch (Below(4)) {
      case 0:
        return -old;
      case 1:
        return old + 0.1 * (Below(21) - 10);
      default:
        return kNumbers[Below(std::size(kNumbers))];
    }
  }
  std::string Text(std::string old, bool bytes) {
    if (!strings_.empty() && Below(2) == 0) {
      return strings_[Below(static_cast<int>(strings_.size()))];
    }
    if (Below(32) == 0) return std::string(static_cast<size_t>(1) << Below(14), 'x');
    std::vector<uint8_t> buffer(std::max<size_t>(old.size() * 2, 32));
    std::memcpy(buffer.data(), old.data(), old.size());
    std::string text(reinterpret_cast<char*>(buffer.data()),
                     LLVMFuzzerMutate(buffer.data(), old.size(), buffer.size()));
    // A string that is not UTF-8 makes a message that does not parse: worth trying, but not often.
    if (!bytes && Below(16) != 0) {
      for (char& c : text) c = static_cast<char>(c & 0x7f);
    }
    return text;
  }

  void Add(pb::Message& message, const pb::FieldDescriptor* field) {
    const pb::Reflection& reflection = *message.GetReflection();
    const int count = reflection.FieldSize(message, field);
    const int from = count == 0 ? -1 : Below(count);
    switch (field->cpp_type()) {
#define ULFD_ADD(CPPTYPE, Name, zero)                                                           \
  case pb::FieldDescriptor::CPPTYPE:                                                            \
    reflection.Add##Name(&message, field,                                                       \
                         from < 0 ? zero : reflection.GetRepeated##Name(message, field, from)); \
    break
      ULFD_ADD(CPPTYPE_INT32, Int32, 0);
      ULFD_ADD(CPPTYPE_INT64, Int64, 0);
      ULFD_ADD(CPPTYPE_UINT32, UInt32, 0);
      ULFD_ADD(CPPTYPE_UINT64, UInt64, 0);
      ULFD_ADD(CPPTYPE_FLOAT, Float, 0);
      ULFD_ADD(CPPTYPE_DOUBLE, Double, 0);
      ULFD_ADD(CPPTYPE_BOOL, Bool, false);
      ULFD_ADD(CPPTYPE_STRING, String, std::string());
#undef ULFD_ADD
      case pb::FieldDescriptor::CPPTYPE_ENUM:
        reflection.AddEnum(&message, field, field->enum_type()->value(0));
        break;
      case pb::FieldDescriptor::CPPTYPE_MESSAGE:
        return;
    }
    if (Below(2) == 0) Set(message, field, count);
  }

  // `index`: of a repeated field; -1: of a single one.
  void Set(pb::Message& message, const pb::FieldDescriptor* field, int index) {
    const pb::Reflection& reflection = *message.GetReflection();
    const bool one = index < 0;
    switch (field->cpp_type()) {
#define ULFD_SET(CPPTYPE, Name, Cast, value)                                    \
  case pb::FieldDescriptor::CPPTYPE: {                                          \
    const auto old = one ? reflection.Get##Name(message, field)                 \
                         : reflection.GetRepeated##Name(message, field, index); \
    const auto changed = Cast(value);                                           \
    if (one) {                                                                  \
      reflection.Set##Name(&message, field, changed);                           \
    } else {                                                                    \
      reflection.SetRepeated##Name(&message, field, index, changed);            \
    }                                                                           \
    return;                                                                     \
  }
      ULFD_SET(CPPTYPE_INT32, Int32, static_cast<int32_t>, Integer(old))
      ULFD_SET(CPPTYPE_INT64, Int64, , Integer(old))
      ULFD_SET(CPPTYPE_UINT32, UInt32, static_cast<uint32_t>, Integer(old))
      ULFD_SET(CPPTYPE_UINT64, UInt64, static_cast<uint64_t>, Integer(static_cast<int64_t>(old)))
      ULFD_SET(CPPTYPE_FLOAT, Float, ToFloat, Number(old))
      ULFD_SET(CPPTYPE_DOUBLE, Double, , Number(old))
      ULFD_SET(CPPTYPE_BOOL, Bool, , !old)
      ULFD_SET(CPPTYPE_STRING, String, ,
               Text(old, field->type() == pb::FieldDescriptor::TYPE_BYTES))
#undef ULFD_SET
      case pb::FieldDescriptor::CPPTYPE_ENUM: {
        const pb::EnumValueDescriptor* value =
            field->enum_type()->value(Below(field->enum_type()->value_count()));
        if (one) {
          reflection.SetEnum(&message, field, value);
        } else {
          reflection.SetRepeatedEnum(&message, field, index, value);
        }
        return;
      }
      case pb::FieldDescriptor::CPPTYPE_MESSAGE:
        return;
    }
  }
  // A double beyond float's range is not converted, which C++ leaves undefined.
  static float ToFloat(double value) {
    constexpr double kMost = std::numeric_limits<float>::max();
    return std::abs(value) <= kMost || value != value
               ? static_cast<float>(value)
               : std::copysign(std::numeric_limits<float>::infinity(),
                               static_cast<float>(value < 0 ? -1 : 1));
  }

  std::minstd_rand random_;
  std::vector<std::string> names_, strings_;
  pb::Message* root_ = nullptr;
  std::vector<pb::Message*> nodes_;
  int depth_ = 0;
  int steps_left_ = 0;
  int64_t bytes_left_ = 0;
};

class Silence : public pb::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

// Writes the message to `to`; 0 if it does not fit.
size_t Write(ProtoForm form, const pb::Message& message, uint8_t* to, size_t max_size) {
  std::string bytes;
  if (form == ProtoForm::kText) {
    pb::TextFormat::PrintToString(message, &bytes);
  } else {
    message.SerializePartialToString(&bytes);
  }
  if (bytes.size() > max_size) return 0;
  std::memcpy(to, bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace

void MutateMessage(uint32_t seed, const std::vector<std::string>& names, pb::Message& message) {
  Mutator(seed, names).Mutate(message);
}

void CrossMessages(uint32_t seed, const pb::Message& from, pb::Message& message) {
  Mutator(seed, {}).Cross(from, message);
}

bool ReadMessage(ProtoForm form, const uint8_t* data, size_t size, pb::Message& message) {
  pb::SetLogHandler(nullptr);  // It would tell of every string that is not UTF-8.
  if (form == ProtoForm::kBinary) {
    return message.ParsePartialFromArray(data, static_cast<int>(size));
  }
  pb::TextFormat::Parser parser;
  Silence silence;
  parser.RecordErrorsTo(&silence);
  parser.AllowPartialMessage(true);
  parser.SetRecursionLimit(100);
  return parser.ParseFromString(std::string(reinterpret_cast<const char*>(data), size), &message);
}

size_t MutateInput(ProtoForm form, const std::vector<std::string>& names, pb::Message& message,
                   uint8_t* data, size_t size, size_t max_size, uint32_t seed) {
  if (seed % 8 != 0 && (ReadMessage(form, data, size, message) || size < 2)) {
    if (size < 2) message.Clear();
    MutateMessage(seed / 8, names, message);
    if (const size_t written = Write(form, message, data, max_size); written > 0) return written;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

size_t CrossInputs(ProtoForm form, pb::Message& a, pb::Message& b, const uint8_t* data1,
                   size_t size1, const uint8_t* data2, size_t size2, uint8_t* out, size_t max_size,
                   uint32_t seed) {
  if (!ReadMessage(form, data1, size1, a) || !ReadMessage(form, data2, size2, b)) return 0;
  CrossMessages(seed, b, a);
  return Write(form, a, out, max_size);
}

}  // namespace ulfd::fuzz
