// Settings: text proto -> a message whose fields carry their range, default and unit as options
// (proto/server_config.proto), checked, every error with its place.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_CONFIG_SETTINGS_H_
#define ULFD_SERVER_CONFIG_SETTINGS_H_

#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ulfd::server {

// Where a message stands in its file, and where complaints about it go.  Borrows all of it.
class SettingsPlace {
 public:
  using Tree = google::protobuf::TextFormat::ParseInfoTree;
  using Location = google::protobuf::TextFormat::ParseLocation;
  SettingsPlace(const google::protobuf::Message& message, const Tree* tree, Location location,
                google::protobuf::io::ErrorCollector& errors)
      : message_(message), tree_(tree), location_(location), errors_(errors) {}

  // "FIELD: TEXT", at the field or at its element `index`; at the message if it has none.
  void Complain(absl::string_view field, absl::string_view text, int index = -1) const;
  // Of a message in this one.
  SettingsPlace Of(absl::string_view field, const google::protobuf::Message& message,
                   int index = -1) const;
  // Complains about every value that its field's options do not allow, here and below.
  void CheckAll() const;

 private:
  const google::protobuf::FieldDescriptor& Field(absl::string_view name) const;
  void CheckField(const google::protobuf::FieldDescriptor& field) const;
  void CheckMap(const google::protobuf::FieldDescriptor& field) const;
  // `index`: -1 for a field that is no list.
  void CheckValue(const google::protobuf::FieldDescriptor& field, int index) const;

  const google::protobuf::Message& message_;
  const Tree* const tree_;  // Null: nothing of the message stands in the file.
  const Location location_;
  google::protobuf::io::ErrorCollector& errors_;
};

// Reads `text` into `message` and checks it, by its options and by `check`.  INVALID_ARGUMENT:
// "SOURCE:LINE:COLUMN: FIELD: what was found, want ...", one line per error.
absl::Status ReadSettings(absl::string_view text, absl::string_view source,
                          const std::function<void(const SettingsPlace&)>& check,
                          google::protobuf::Message& message);

// Sets a field, "limits.max_ads", to what a command line says.  INVALID_ARGUMENT: what was found
// and what is wanted.
absl::Status SetSetting(absl::string_view path, const std::string& value,
                        google::protobuf::Message& message);

// Sets what is absent to its default.
void FillDefaults(google::protobuf::Message& message);

// What a model or a label may be called.  INVALID_ARGUMENT "FIELD: ..., want ...".
absl::Status CheckName(absl::string_view field, absl::string_view name);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_CONFIG_SETTINGS_H_
