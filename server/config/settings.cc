// Reflection over messages and their options.
// SPDX-License-Identifier: Apache-2.0
#include "server/config/settings.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/host_port.h"
#include "base/text.h"
#include "engine/weights/proto_file.h"
#include "proto/server_config.pb.h"
#include "server/system/listening_socket.h"

namespace ulfd::server {
namespace {

namespace pb = google::protobuf;
using Type = pb::FieldDescriptor::CppType;
using config::v1::Setting;

constexpr char kMark[] = "\xef\xbb\xbf";

// Errors of one file, each "SOURCE:LINE:COLUMN: message": the first ones, and how many more there
// are.
class Errors final : public pb::io::ErrorCollector {
 public:
  Errors(absl::string_view source, absl::string_view text, const pb::Descriptor& root)
      : source_(source), lines_(absl::StrSplit(text, '\n')), root_(root) {}
  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    constexpr size_t kMaxBytes = 1000;
    constexpr int kMostErrors = 50;
    if (++count_ > kMostErrors) return;
    std::string what = Printable(message, kMaxBytes);  // It quotes the file.
    const std::vector<std::string> quoted = absl::StrSplit(message, '"');
    // Message type "TYPE" has no field named "NAME".
    if (quoted.size() == 5 && absl::StrContains(quoted[2], "has no field named")) {
      column = ColumnOfName(line, column, quoted[3]);
      const std::string close = engine::WhatWasMeant(message, root_);
      if (!close.empty()) what = absl::StrCat(absl::StripSuffix(what, "."), close);
    }
    // Non-repeated field "NAME" is specified multiple times.
    if (quoted.size() == 3 && absl::StrContains(quoted[2], "specified multiple times")) {
      column = ColumnOfName(line, column, quoted[1]);
    }
    errors_.push_back(line < 0 ? absl::StrCat(source_, ": ", what)
                               : absl::StrCat(source_, ":", line + 1, ":", column + 1, ": ", what));
  }
  absl::Status ToStatus() const {
    if (errors_.empty()) return absl::OkStatus();
    const int more = count_ - static_cast<int>(errors_.size());
    return InvalidArgument(absl::StrJoin(errors_, "\n"),
                           more == 0 ? "" : absl::StrCat("\nand ", more, " more errors"));
  }

 private:
  // Protobuf points behind the name.  Its columns are not bytes after a tab.
  int ColumnOfName(int line, int column, absl::string_view name) const {
    const absl::string_view before = absl::string_view(lines_[line]).substr(0, column);
    const size_t at = before.rfind(name);
    return at == before.npos || absl::StrContains(before, '\t') ? column : static_cast<int>(at);
  }

  const std::string source_;
  const std::vector<std::string> lines_;
  const pb::Descriptor& root_;
  std::vector<std::string> errors_;
  int count_ = 0;
};

const Setting& SettingOf(const pb::FieldDescriptor& field) {
  return field.options().GetExtension(config::v1::setting);
}

// What gRPC lets a client send as text.
bool IsMetadataKey(absl::string_view key) {
  const auto ok = [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_' || c == '-' || c == '.';
  };
  return !key.empty() && std::all_of(key.begin(), key.end(), ok) &&
         !absl::StartsWith(key, "grpc-") && !absl::EndsWith(key, "-bin");
}

constexpr size_t kMaxNameBytes = 255;

// What a directory of the repository can be called.
constexpr char kWantedModelName[] =
    "1 to 255 bytes of printable text without \"/\", the first no \".\"";
bool IsModelName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name[0] != '.' &&
         !absl::StrContains(name, '/') && Printable(name, name.size()) == name;
}

constexpr char kWantedName[] =
    "1 to 255 letters, digits, \"_\", \"-\" and \".\", the first no \".\"";
bool IsName(absl::string_view name) {
  const auto ok = [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && name.size() <= kMaxNameBytes && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), ok);
}

bool HasForm(const Setting& setting, const std::string& text) {
  switch (setting.form()) {
    case Setting::FORM_NAME:
      return IsName(text);
    case Setting::FORM_MODEL_NAME:
      return IsModelName(text);
    case Setting::FORM_IP_ADDRESS:
      return IsIpAddress(text);
    case Setting::FORM_ENDPOINT:
      return text.empty() || ParseEndpoint(text).ok();
    case Setting::FORM_METADATA_KEY:
      return IsMetadataKey(text);
    case Setting::FORM_HOST_PORT:
      return IsHostAndPort(text);
    default:
      return true;
  }
}

std::string WantedForm(const Setting& setting) {
  switch (setting.form()) {
    case Setting::FORM_NAME:
      return kWantedName;
    case Setting::FORM_MODEL_NAME:
      return kWantedModelName;
    case Setting::FORM_IP_ADDRESS:
      return "an IP address";
    case Setting::FORM_HOST_PORT:
      return "host:port";
    case Setting::FORM_ENDPOINT:
      return "IP:PORT or unix:PATH";
    case Setting::FORM_METADATA_KEY:
      return "lower case letters, digits, \"_\", \"-\" and \".\", no \"grpc-\" in front and no "
             "\"-bin\" behind";
    default:
      return setting.want();
  }
}

bool IsText(const pb::FieldDescriptor& field) { return field.cpp_type() == Type::CPPTYPE_STRING; }

// "0 or 1..100"; "" if any number is.
std::string WantedNumber(const Setting& setting, bool whole) {
  if (!setting.has_min()) return "";
  const auto number = [whole](double value) {
    return whole ? absl::StrCat(static_cast<int64_t>(value)) : absl::StrCat(value);
  };
  return absl::StrCat(setting.zero() ? "0 or " : "",
                      setting.has_max()
                          ? absl::StrCat(number(setting.min()), "..", number(setting.max()))
                          : absl::StrCat("at least ", number(setting.min())));
}

// "0 or 1..100", "debug, info or error", "an IP address"; "" if anything is.
std::string Wanted(const pb::FieldDescriptor& field) {
  const Setting& setting = SettingOf(field);
  if (std::string form = WantedForm(setting); !form.empty()) return form;
  if (const int words = setting.one_of_size(); words > 0) {
    const std::vector<std::string> first(setting.one_of().begin(), setting.one_of().end() - 1);
    return absl::StrCat(absl::StrJoin(first, ", "), " or ", setting.one_of(words - 1));
  }
  return WantedNumber(setting, field.cpp_type() != Type::CPPTYPE_DOUBLE);
}

std::string WithWanted(absl::string_view what, absl::string_view wanted) {
  return wanted.empty() ? std::string(what) : absl::StrCat(what, ", want ", wanted);
}

// The value as a file has it, to the last digit; `index` -1: of no list.
std::string TextOf(const pb::Message& message, const pb::FieldDescriptor& field, int index) {
  std::string text;
  pb::TextFormat::PrintFieldValueToString(message, &field, index, &text);
  return text;
}

bool InRange(const Setting& setting, absl::string_view number) {
  double value = 0;
  if (!setting.has_min() || !absl::SimpleAtod(number, &value)) return true;
  if (setting.zero() && value == 0) return true;
  // Not a number is out of every range.
  return value >= setting.min() && (!setting.has_max() || value <= setting.max());
}

// Why the value may not be, "65536, want 0..65535"; "" if it may.
std::string Refusal(const pb::Message& message, const pb::FieldDescriptor& field, int index) {
  const Setting& setting = SettingOf(field);
  const std::string wanted = Wanted(field);
  if (!IsText(field)) {
    const std::string number = TextOf(message, field, index);
    return InRange(setting, number) ? "" : WithWanted(number, wanted);
  }
  const pb::Reflection& reflection = *message.GetReflection();
  const std::string text = index < 0 ? reflection.GetString(message, &field)
                                     : reflection.GetRepeatedString(message, &field, index);
  if (absl::StrContains(text, '\0')) return absl::StrCat(Quote(text), ", want no byte 0 in it");
  const auto& words = setting.one_of();
  const bool is_word = words.empty() || std::count(words.begin(), words.end(), text) > 0;
  const bool may_be_empty = !field.is_repeated() && setting.want().empty();
  if (is_word && HasForm(setting, text) && (may_be_empty || !text.empty())) return "";
  return WithWanted(text.empty() ? "empty" : Quote(text), wanted);
}

}  // namespace

const pb::FieldDescriptor& SettingsPlace::Field(absl::string_view name) const {
  return *message_.GetDescriptor()->FindFieldByName(std::string(name));
}

void SettingsPlace::Complain(absl::string_view field, absl::string_view text, int index) const {
  Location at;
  if (tree_ != nullptr) at = tree_->GetLocation(&Field(field), index);
  if (at.line < 0) at = location_;
  errors_.AddError(at.line, at.column, absl::StrCat(field, ": ", text));
}

SettingsPlace SettingsPlace::Of(absl::string_view field, const pb::Message& message,
                                int index) const {
  if (tree_ == nullptr) return {message, nullptr, location_, errors_};
  return {message, tree_->GetTreeForNested(&Field(field), index),
          tree_->GetLocation(&Field(field), index), errors_};
}

void SettingsPlace::CheckAll() const {
  const pb::Descriptor& type = *message_.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    type.field(i)->is_map() ? CheckMap(*type.field(i)) : CheckField(*type.field(i));
  }
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    const pb::OneofDescriptor& choice = *type.oneof_decl(i);
    if (message_.GetReflection()->HasOneof(message_, &choice)) continue;
    std::vector<std::string> names;
    names.reserve(static_cast<size_t>(choice.field_count()));
    for (int f = 0; f < choice.field_count(); ++f) names.push_back(choice.field(f)->name());
    errors_.AddError(location_.line, location_.column,
                     absl::StrCat("empty, want ", absl::StrJoin(names, " or ")));
  }
}

void SettingsPlace::CheckField(const pb::FieldDescriptor& field) const {
  const pb::Reflection& reflection = *message_.GetReflection();
  const int count = field.is_repeated() ? reflection.FieldSize(message_, &field)
                                        : (reflection.HasField(message_, &field) ? 1 : 0);
  if (count == 0 && SettingOf(field).required()) {
    errors_.AddError(location_.line, location_.column,
                     absl::StrCat(field.name(), ": ", WithWanted("missing", Wanted(field))));
  }
  std::set<std::string> seen;
  for (int i = 0; i < count; ++i) {
    CheckValue(field, field.is_repeated() ? i : -1);
    if (!SettingOf(field).unique()) continue;
    const std::string text = TextOf(message_, field, i);
    if (!seen.insert(text).second) Complain(field.name(), absl::StrCat(text, " is given twice"), i);
  }
}

// Entries as the file has them: the map itself keeps only one of those with one key.
void SettingsPlace::CheckMap(const pb::FieldDescriptor& field) const {
  const Setting& setting = SettingOf(field);
  const pb::FieldDescriptor& key_field = *field.message_type()->map_key();
  const pb::Reflection& reflection = *message_.GetReflection();
  std::set<std::string> seen;
  for (int i = 0; i < reflection.FieldSize(message_, &field); ++i) {
    const pb::Message& entry = reflection.GetRepeatedMessage(message_, &field, i);
    const std::string key = entry.GetReflection()->GetString(entry, &key_field);
    const std::string value = TextOf(entry, *field.message_type()->map_value(), -1);
    if (!HasForm(setting, key)) {
      Complain(field.name(), WithWanted(Quote(key), WantedForm(setting)), i);
    } else if (!InRange(setting, value)) {
      Complain(field.name(),
               absl::StrCat(Quote(key), ": ", WithWanted(value, WantedNumber(setting, true))), i);
    } else if (!seen.insert(key).second) {
      Complain(field.name(), absl::StrCat(Quote(key), " is given twice"), i);
    }
  }
}

void SettingsPlace::CheckValue(const pb::FieldDescriptor& field, int index) const {
  if (field.cpp_type() == Type::CPPTYPE_MESSAGE) {
    const pb::Reflection& reflection = *message_.GetReflection();
    const pb::Message& below = index < 0 ? reflection.GetMessage(message_, &field)
                                         : reflection.GetRepeatedMessage(message_, &field, index);
    return Of(field.name(), below, index).CheckAll();
  }
  if (const std::string why = Refusal(message_, field, index); !why.empty()) {
    Complain(field.name(), why, index);
  }
}

absl::Status ReadSettings(absl::string_view text, absl::string_view source,
                          const std::function<void(const SettingsPlace&)>& check,
                          pb::Message& message) {
  Errors errors(source, text, *message.GetDescriptor());
  if (const size_t good = Utf8Bytes(text); good < text.size() || absl::StartsWith(text, kMark)) {
    const absl::string_view before = good < text.size() ? text.substr(0, good) : "";
    const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0.
    errors.AddError(static_cast<int>(std::count(before.begin(), before.end(), '\n')),
                    static_cast<int>(before.size() - line_start),
                    "want UTF-8 without a byte order mark");
    return errors.ToStatus();
  }
  SettingsPlace::Tree tree;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&tree);
  parser.AllowCaseInsensitiveField(false);
  if (parser.ParseFromString(std::string(text), &message)) {
    const SettingsPlace place(message, &tree, SettingsPlace::Location(), errors);
    place.CheckAll();
    check(place);
  }
  return errors.ToStatus();
}

absl::Status SetSetting(absl::string_view path, const std::string& value, pb::Message& message) {
  pb::Message* at = &message;
  const pb::FieldDescriptor* field = nullptr;
  for (absl::string_view name : absl::StrSplit(path, '.')) {
    if (field != nullptr) at = at->GetReflection()->MutableMessage(at, field);
    field = at->GetDescriptor()->FindFieldByName(std::string(name));
  }
  const pb::Reflection& reflection = *at->GetReflection();
  if (IsText(*field)) {
    reflection.SetString(at, field, value);
  } else if (int number = 0; absl::SimpleAtoi(value, &number) && absl::StrCat(number) == value) {
    reflection.SetInt32(at, field, number);
  } else {
    return InvalidArgument("\"", value, "\", want a number in ", Wanted(*field));
  }
  const std::string why = Refusal(*at, *field, -1);
  return why.empty() ? absl::OkStatus() : InvalidArgument(why);
}

void FillDefaults(pb::Message& message) {
  const pb::Reflection& reflection = *message.GetReflection();
  const pb::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor* field = type.field(i);
    const Setting& setting = SettingOf(*field);
    if (field->is_repeated()) {
      const int count = reflection.FieldSize(message, field);
      if (field->cpp_type() == Type::CPPTYPE_MESSAGE && !field->is_map()) {
        for (int m = 0; m < count; ++m) {
          FillDefaults(*reflection.MutableRepeatedMessage(&message, field, m));
        }
      } else if (count == 0 && setting.has_default_()) {
        reflection.AddString(&message, field, setting.default_());
      }
      continue;
    }
    const bool has = reflection.HasField(message, field);
    if (field->cpp_type() == Type::CPPTYPE_MESSAGE) {
      if (has || setting.filled()) FillDefaults(*reflection.MutableMessage(&message, field));
    } else if (!has && setting.has_default_()) {
      const std::string text = field->cpp_type() == Type::CPPTYPE_STRING
                                   ? absl::StrCat("\"", setting.default_(), "\"")
                                   : setting.default_();
      pb::TextFormat::ParseFieldValueFromString(text, field, &message);
    }
  }
}

absl::Status CheckName(absl::string_view field, absl::string_view name) {
  if (IsName(name)) return absl::OkStatus();
  return InvalidArgument(field, ": ",
                         WithWanted(name.empty() ? "empty" : Quote(name), kWantedName));
}

}  // namespace ulfd::server
