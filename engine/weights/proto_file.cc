// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/proto_file.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstdint>
#include <limits>
#include <map>
#include <new>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/bounded_parse.h"
#include "base/closest_names.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ulfd::engine {
namespace {

namespace pb = google::protobuf;

// protobuf keeps sizes in int.
constexpr int64_t kMaxBytes = std::numeric_limits<int>::max();
constexpr size_t kMaxErrorBytes = 1000;
// Arrays of numbers take five times the bytes of a text, where places are kept.
constexpr int64_t kParsedBytesPerByte = 8, kParsedBytesPerCharacter = 16;

// Adds the enums of all fields of that name.
void FindEnums(const pb::Descriptor& type, absl::string_view field,
               std::set<const pb::EnumDescriptor*>& found) {
  const pb::FieldDescriptor* const known = type.FindFieldByName(std::string(field));
  if (known != nullptr && known->enum_type() != nullptr) found.insert(known->enum_type());
  for (int i = 0; i < type.nested_type_count(); ++i) FindEnums(*type.nested_type(i), field, found);
}

// Keeps the first error; those after it are mostly its echo.
class FirstError final : public pb::io::ErrorCollector {
 public:
  explicit FirstError(const pb::Descriptor& root) : root_(root) {}
  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    if (!text_.empty()) return;
    std::string what = Printable(message, kMaxErrorBytes);  // It quotes the file.
    if (const std::string meant = WhatWasMeant(message, root_); !meant.empty()) {
      what = absl::StrCat(absl::StripSuffix(what, "."), meant);
    }
    text_ = line < 0 ? what : absl::StrCat(line + 1, ":", column + 1, ": ", what);
    if (absl::EndsWith(text_, "got: ")) text_ += "end of file";
  }
  const std::string& text() const { return text_; }

 private:
  const pb::Descriptor& root_;
  std::string text_;
};

// A text that ends when the load has to: one long token is read without an allocation.
class TextOfLoad final : public pb::io::ArrayInputStream {
 public:
  explicit TextOfLoad(absl::string_view text)
      : ArrayInputStream(text.data(), static_cast<int>(text.size()), kPieceBytes) {}
  bool Next(const void** data, int* size) override {
    return LoadScope::Check().ok() && ArrayInputStream::Next(data, size);
  }

 private:
  static constexpr int kPieceBytes = 1 << 16;
};

// "SOURCE:LINE:COLUMN" of the message that holds the field `path`
// ("layer_params[3].concat_param.dim").
std::string Locate(absl::string_view source, const std::string& path,
                   const pb::Descriptor* descriptor, pb::TextFormat::ParseInfoTree* tree) {
  pb::TextFormat::ParseLocation found;
  const std::vector<std::string> steps = absl::StrSplit(path, '.');
  for (size_t i = 0; i + 1 < steps.size() && tree != nullptr && descriptor != nullptr; ++i) {
    const std::vector<std::string> parts = absl::StrSplit(steps[i], absl::ByAnyChar("[]"));
    const pb::FieldDescriptor* field = descriptor->FindFieldByName(parts[0]);
    if (field == nullptr) break;
    int index = 0;
    if (field->is_repeated() && (parts.size() < 2 || !absl::SimpleAtoi(parts[1], &index))) break;
    if (!field->is_repeated()) index = -1;
    found = tree->GetLocation(field, index);
    tree = tree->GetTreeForNested(field, index);
    descriptor = field->message_type();
  }
  if (found.line < 0) return std::string(source);
  return absl::StrCat(source, ":", found.line + 1, ":", found.column + 1);
}

std::string MissingField(const pb::Message& message, const std::string& path) {
  return absl::StrCat("required field ", path, " of ", message.GetTypeName(), " is missing");
}

// Files of others may have fields and numbers of their own.
enum class Schema { kWhole, kOthers };

std::string FindBadField(const pb::Message& message, Schema schema);

// FindBadField within the values of one field of `message`.
std::string FindBadValue(const pb::Message& message, const pb::FieldDescriptor* field,
                         Schema schema) {
  const pb::Reflection& reflection = *message.GetReflection();
  const bool repeated = field->is_repeated();
  const int n = repeated ? reflection.FieldSize(message, field) : 1;
  for (int i = 0; i < n; ++i) {
    const std::string name = repeated ? absl::StrCat(field->name(), "[", i, "]") : field->name();
    if (field->type() == pb::FieldDescriptor::TYPE_STRING) {
      std::string scratch;
      const std::string& text =
          repeated ? reflection.GetRepeatedStringReference(message, field, i, &scratch)
                   : reflection.GetStringReference(message, field, &scratch);
      if (!IsUtf8(text)) return absl::StrCat(name, " ", Quote(text), " is not UTF-8");
      continue;
    }
    if (field->type() == pb::FieldDescriptor::TYPE_ENUM) {
      const int value = repeated ? reflection.GetRepeatedEnumValue(message, field, i)
                                 : reflection.GetEnumValue(message, field);
      if (schema == Schema::kOthers || field->enum_type()->FindValueByNumber(value) != nullptr) {
        continue;
      }
      return absl::StrCat(name, ": ", value, " is no value of ", field->enum_type()->name());
    }
    const std::string inner =
        FindBadField(repeated ? reflection.GetRepeatedMessage(message, field, i)
                              : reflection.GetMessage(message, field),
                     schema);
    if (!inner.empty()) return absl::StrCat(name, ".", inner);
  }
  return "";
}

// The path of the first field that the schema lacks ("layer_params[3].field 7 is unknown"), number
// that its enum lacks, or string that is not UTF-8 and so could not be sent on in a reply; of the
// schema of others strings alone.  Empty if there is none.
std::string FindBadField(const pb::Message& message, Schema schema) {
  const pb::Reflection& reflection = *message.GetReflection();
  const pb::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  if (schema == Schema::kWhole && !unknown.empty()) {
    return absl::StrCat("field ", unknown.field(0).number(), " is unknown");
  }
  std::vector<const pb::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    if (field->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE &&
        field->type() != pb::FieldDescriptor::TYPE_STRING &&
        field->type() != pb::FieldDescriptor::TYPE_ENUM) {
      continue;
    }
    if (std::string bad = FindBadValue(message, field, schema); !bad.empty()) return bad;
  }
  return "";
}

// Says where broken wire format breaks, as far as its outermost fields tell.
std::string DescribeBreak(absl::string_view bytes, const pb::Descriptor& descriptor) {
  pb::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                              static_cast<int>(bytes.size()));
  std::map<int, int> seen;
  while (in.CurrentPosition() < static_cast<int>(bytes.size())) {
    const int at = in.CurrentPosition();
    const uint32_t tag = in.ReadTag();
    const int number = pb::internal::WireFormatLite::GetTagFieldNumber(tag);
    const pb::FieldDescriptor* field = descriptor.FindFieldByNumber(number);
    const std::string name = field == nullptr
                                 ? absl::StrCat("field ", number)
                                 : absl::StrCat(field->name(), "[", seen[number]++, "]");
    if (tag == 0) return absl::StrCat("no field begins at byte ", at);
    uint32_t length = 0;
    if (pb::internal::WireFormatLite::GetTagWireType(tag) ==
        pb::internal::WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!in.ReadVarint32(&length)) return absl::StrCat("no length of ", name, " at byte ", at);
      const int64_t left = static_cast<int64_t>(bytes.size()) - in.CurrentPosition();
      if (length > left) {
        return absl::StrCat(name, " at byte ", at, " has ", length, " bytes, ", left, " are left");
      }
      if (!in.Skip(static_cast<int>(length))) break;
    } else if (!pb::internal::WireFormatLite::SkipField(&in, tag)) {
      return absl::StrCat(name, " at byte ", at, " is broken");
    }
  }
  return "a field inside is broken";
}

}  // namespace

ProtoFormat DetectProtoFormat(absl::string_view content) {
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    const bool space = c == '\n' || c == '\r' || c == '\t' || c == '\v' || c == '\f';
    if ((byte < 0x20 && !space) || byte == 0x7f) return ProtoFormat::kBinary;
  }
  return ProtoFormat::kText;
}

std::string WhatWasMeant(absl::string_view error, const pb::Descriptor& root) {
  const std::vector<std::string> quoted = absl::StrSplit(error, '"');
  if (quoted.size() != 5) return "";
  // Message type "TYPE" has no field named "NAME".
  if (absl::StrContains(quoted[2], "has no field named")) {
    const pb::Descriptor* type = root.file()->pool()->FindMessageTypeByName(quoted[1]);
    std::vector<absl::string_view> names;
    for (int i = 0; type != nullptr && i < type->field_count(); ++i) {
      names.push_back(type->field(i)->name());
    }
    return DidYouMean(quoted[3], names);
  }
  // Unknown enumeration value of "VALUE" for field "NAME".
  if (!absl::StartsWith(error, "Unknown enumeration value")) return "";
  std::set<const pb::EnumDescriptor*> enums;
  for (int i = 0; i < root.file()->message_type_count(); ++i) {
    FindEnums(*root.file()->message_type(i), quoted[3], enums);
  }
  if (enums.size() != 1) return "";
  std::vector<std::string> values;
  for (int i = 0; i < (*enums.begin())->value_count(); ++i) {
    const std::string& name = (*enums.begin())->value(i)->name();
    if (!absl::EndsWith(name, "_UNSPECIFIED")) values.push_back(name);
  }
  return absl::StrCat("; want one of ", absl::StrJoin(values, ", "));
}

absl::Status ParseTextProto(absl::string_view text, absl::string_view source,
                            pb::Message& message) {
  if (static_cast<int64_t>(text.size()) > kMaxBytes) {
    return InvalidArgument(source, ": ", text.size(), " bytes of protobuf text, want at most ",
                           kMaxBytes);
  }
  if (absl::StartsWith(text, "\xef\xbb\xbf")) text.remove_prefix(3);  // Byte order mark.
  const pb::LogSilencer silencer;  // What is wrong is in the status.
  FirstError errors(*message.GetDescriptor());
  pb::TextFormat::ParseInfoTree locations;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&locations);
  parser.AllowPartialMessage(true);  // Missing fields are reported below, with a position.
  parser.SetRecursionLimit(100);
  TextOfLoad in(text);
  const bool parsed = parser.Parse(&in, &message);
  RETURN_IF_ERROR(LoadScope::Check());
  if (!parsed) {
    return InvalidArgument(source, ":", errors.text());
  }
  if (const std::string bad = FindBadField(message, Schema::kWhole); !bad.empty()) {
    return InvalidArgument(source, ": ", bad);
  }
  std::vector<std::string> missing;
  message.FindInitializationErrors(&missing);
  if (missing.empty()) return absl::OkStatus();
  return InvalidArgument(Locate(source, missing[0], message.GetDescriptor(), &locations), ": ",
                         MissingField(message, missing[0]));
}

absl::Status ParseBinaryProto(absl::string_view bytes, absl::string_view source,
                              pb::Message& message) {
  const std::string prefix = absl::StrCat(source, ": binary ", message.GetTypeName(), ": ");
  if (static_cast<int64_t>(bytes.size()) > kMaxBytes) {
    return InvalidArgument(prefix, bytes.size(), " bytes, want at most ", kMaxBytes);
  }
  const pb::LogSilencer silencer;  // What is wrong is in the status.
  pb::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                              static_cast<int>(bytes.size()));
  in.SetTotalBytesLimit(static_cast<int>(kMaxBytes));
  if (!message.ParsePartialFromCodedStream(&in) || !in.ConsumedEntireMessage()) {
    return InvalidArgument(prefix,
                           "truncated or broken: ", DescribeBreak(bytes, *message.GetDescriptor()));
  }
  if (const std::string bad = FindBadField(message, Schema::kWhole); !bad.empty()) {
    return InvalidArgument(prefix, bad);
  }
  std::vector<std::string> missing;
  message.FindInitializationErrors(&missing);
  if (missing.empty()) return absl::OkStatus();
  return InvalidArgument(prefix, MissingField(message, missing[0]));
}

absl::Status CheckStrings(const pb::Message& message, absl::string_view source) {
  const std::string bad = FindBadField(message, Schema::kOthers);
  return bad.empty() ? absl::OkStatus() : InvalidArgument(source, ": ", bad);
}

absl::StatusOr<ProtoFormat> ParseProto(absl::string_view content, absl::string_view source,
                                       ProtoFormat format, pb::Message& message) {
  if (format == ProtoFormat::kDetect) format = DetectProtoFormat(content);
  const bool text = format == ProtoFormat::kText;
  LoadLimits limits;
  limits.max_memory_bytes =
      ParseBound(content.size(), text ? kParsedBytesPerCharacter : kParsedBytesPerByte);
  try {
    const LoadScope scope(limits);
    RETURN_IF_ERROR(text ? ParseTextProto(content, source, message)
                         : ParseBinaryProto(content, source, message));
  } catch (const std::bad_alloc&) {
    message.Clear();
    RETURN_IF_ERROR(LoadScope::Check());
    return InvalidArgument(source, ": ", content.size(),
                           " bytes of too many small things: parsed, a ", message.GetTypeName(),
                           " of that size may take ", limits.max_memory_bytes, " bytes of memory");
  }
  return format;
}

absl::StatusOr<ProtoFormat> ReadProtoFile(const std::string& path, ProtoFormat format,
                                          pb::Message& message) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  return ParseProto(content, path, format, message);
}

}  // namespace ulfd::engine
