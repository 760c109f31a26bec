// Reflection over messages and their options.
// SPDX-License-Identifier: Apache-2.0
#include "server/config/settings.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/closest_names.h"
#include "base/text.h"
#include "proto/server_config.pb.h"

namespace ulfd::server {
namespace {

namespace pb = google::protobuf;
using Type = pb::FieldDescriptor::CppType;
using config::v1::Setting;

// Errors of one file, each "SOURCE:LINE:COLUMN: message".
class Errors final : public pb::io::ErrorCollector {
 public:
  Errors(absl::string_view source, const pb::Descriptor& root) : source_(source), root_(root) {}
  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    constexpr size_t kMaxBytes = 1000;
    std::string what = Printable(message, kMaxBytes);  // It quotes the file.
    if (const std::string close = Suggestion(message); !close.empty()) {
      what = absl::StrCat(absl::StripSuffix(what, "."), close);
    }
    errors_.push_back(line < 0 ? absl::StrCat(source_, ": ", what)
                               : absl::StrCat(source_, ":", line + 1, ":", column + 1, ": ", what));
  }
  absl::Status ToStatus() const {
    if (errors_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(errors_, "\n"));
  }

 private:
  // The fields that may have been meant, where protobuf complains of an unknown one.
  std::string Suggestion(const std::string& message) const {
    const std::vector<std::string> quoted = absl::StrSplit(message, '"');
    constexpr size_t kWords = 5;  // Message type "TYPE" has no field named "NAME".
    if (quoted.size() != kWords || !absl::StrContains(quoted[2], "has no field named")) return "";
    const pb::Descriptor* type = root_.file()->pool()->FindMessageTypeByName(quoted[1]);
    if (type == nullptr) return "";
    std::vector<absl::string_view> names;
    for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
    return DidYouMean(quoted[3], names);
  }

  const std::string source_;
  const pb::Descriptor& root_;
  std::vector<std::string> errors_;
};

const Setting& SettingOf(const pb::FieldDescriptor& field) {
  return field.options().GetExtension(config::v1::setting);
}

std::string Number(const pb::FieldDescriptor& field, double value) {
  if (field.cpp_type() == Type::CPPTYPE_DOUBLE) return absl::StrCat(value);
  return absl::StrCat(static_cast<int64_t>(value));
}

// "0 or 1..100", "debug, info or error", "an IP address"; "" if anything is.
std::string Wanted(const pb::FieldDescriptor& field) {
  const Setting& setting = SettingOf(field);
  if (!setting.want().empty()) return setting.want();
  if (const int words = setting.one_of_size(); words > 0) {
    const std::vector<std::string> first(setting.one_of().begin(), setting.one_of().end() - 1);
    return absl::StrCat(absl::StrJoin(first, ", "), " or ", setting.one_of(words - 1));
  }
  if (!setting.has_min()) return "";
  const std::string min = Number(field, setting.min());
  return absl::StrCat(setting.zero() ? "0 or " : "",
                      setting.has_max() ? absl::StrCat(min, "..", Number(field, setting.max()))
                                        : absl::StrCat("at least ", min));
}

std::string WithWanted(absl::string_view what, const pb::FieldDescriptor& field) {
  const std::string wanted = Wanted(field);
  return wanted.empty() ? std::string(what) : absl::StrCat(what, ", want ", wanted);
}

// The value of a number or a text as it is written; `index` -1: of no list.
std::string TextOf(const pb::Message& message, const pb::FieldDescriptor& field, int index) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case Type::CPPTYPE_INT32:
      return absl::StrCat(index < 0 ? reflection.GetInt32(message, &field)
                                    : reflection.GetRepeatedInt32(message, &field, index));
    case Type::CPPTYPE_INT64:
      return absl::StrCat(index < 0 ? reflection.GetInt64(message, &field)
                                    : reflection.GetRepeatedInt64(message, &field, index));
    case Type::CPPTYPE_DOUBLE:
      return absl::StrCat(reflection.GetDouble(message, &field));
    case Type::CPPTYPE_STRING:
      return index < 0 ? reflection.GetString(message, &field)
                       : reflection.GetRepeatedString(message, &field, index);
    default:
      return "";
  }
}

// Why the value may not be, "65536, want 0..65535"; "" if it may.
std::string Refusal(const pb::FieldDescriptor& field, const std::string& text) {
  const Setting& setting = SettingOf(field);
  if (field.cpp_type() == Type::CPPTYPE_STRING) {
    const bool may_be_empty = !field.is_repeated() && setting.want().empty();
    if (text.empty() && !may_be_empty) return WithWanted("empty", field);
    const auto& words = setting.one_of();
    if (words.empty() || std::count(words.begin(), words.end(), text) > 0) return "";
    return WithWanted(absl::StrCat("\"", text, "\""), field);
  }
  double value = 0;
  if (!setting.has_min() || !absl::SimpleAtod(text, &value)) return "";
  // Not a number is out of every range.
  const bool good = value >= setting.min() && (!setting.has_max() || value <= setting.max());
  return good || (setting.zero() && value == 0) ? "" : WithWanted(text, field);
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
    if (!type.field(i)->is_map()) CheckField(*type.field(i));
  }
}

void SettingsPlace::CheckField(const pb::FieldDescriptor& field) const {
  const pb::Reflection& reflection = *message_.GetReflection();
  const int count = field.is_repeated() ? reflection.FieldSize(message_, &field)
                                        : (reflection.HasField(message_, &field) ? 1 : 0);
  if (count == 0 && SettingOf(field).required()) {
    errors_.AddError(location_.line, location_.column,
                     absl::StrCat(field.name(), ": ", WithWanted("missing", field)));
  }
  for (int i = 0; i < count; ++i) CheckValue(field, field.is_repeated() ? i : -1);
}

void SettingsPlace::CheckValue(const pb::FieldDescriptor& field, int index) const {
  if (field.cpp_type() == Type::CPPTYPE_MESSAGE) {
    const pb::Reflection& reflection = *message_.GetReflection();
    const pb::Message& below = index < 0 ? reflection.GetMessage(message_, &field)
                                         : reflection.GetRepeatedMessage(message_, &field, index);
    return Of(field.name(), below, index).CheckAll();
  }
  const std::string text = TextOf(message_, field, index);
  if (const std::string why = Refusal(field, text); !why.empty()) {
    Complain(field.name(), why, index);
  }
  for (int i = 0; SettingOf(field).unique() && i < index; ++i) {
    if (TextOf(message_, field, i) != text) continue;
    return Complain(field.name(), absl::StrCat(text, " is given twice"), index);
  }
}

absl::Status ReadSettings(absl::string_view text, absl::string_view source,
                          const std::function<void(const SettingsPlace&)>& check,
                          pb::Message& message) {
  Errors errors(source, *message.GetDescriptor());
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
  if (field->cpp_type() == Type::CPPTYPE_STRING) {
    reflection.SetString(at, field, value);
  } else if (int number = 0; absl::SimpleAtoi(value, &number)) {
    reflection.SetInt32(at, field, number);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", value, "\", want a number in ", Wanted(*field)));
  }
  const std::string why = Refusal(*field, value);
  return why.empty() ? absl::OkStatus() : absl::InvalidArgumentError(why);
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

}  // namespace ulfd::server
