// SPDX-License-Identifier: Apache-2.0
#include "base/flags/flag_set.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/closest_names.h"
#include "base/errors.h"

namespace ulfd {
namespace {

constexpr char kUsagePayload[] = "ulf/usage";
constexpr char kHelpPayload[] = "ulf/help";

}  // namespace

absl::Status UsageError(absl::string_view message) {
  absl::Status status = InvalidArgument(message);
  status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) {
  return status.GetPayload(kUsagePayload).has_value();
}

bool IsHelpPrinted(const absl::Status& status) {
  return status.GetPayload(kHelpPayload).has_value();
}

FlagSet::Flag* FlagSet::Find(absl::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

bool FlagSet::IsSet(absl::string_view name) const {
  return std::any_of(flags_.begin(), flags_.end(),
                     [&](const Flag& flag) { return flag.name == name && flag.set; });
}

absl::Status FlagSet::Only(bool applies, absl::string_view what,
                           std::initializer_list<absl::string_view> names) const {
  for (const absl::string_view name : names) {
    if (!applies && IsSet(name)) return UsageError("--", name, ": only for ", what);
  }
  return absl::OkStatus();
}

void FlagSet::AddRead(const std::string& name, const std::string& help,
                      std::function<absl::Status(const std::string&)> read) {
  flags_.push_back({.name = name, .help = help, .read = std::move(read)});
}

absl::Status FlagSet::ParseFlag(absl::string_view arg, Args args, size_t* next) {
  absl::string_view name = arg;
  if (!absl::ConsumePrefix(&name, "--")) absl::ConsumePrefix(&name, "-");
  std::string value;
  bool has_value = false;
  if (const size_t equals = name.find('='); equals != absl::string_view::npos) {
    value = std::string(name.substr(equals + 1));
    name = name.substr(0, equals);
    has_value = true;
  }
  Flag* flag = Find(name);
  if (flag == nullptr && !has_value && absl::StartsWith(name, "no")) {
    flag = Find(name.substr(2));
    if (flag != nullptr && !flag->is_bool) flag = nullptr;
    value = "false";
    has_value = flag != nullptr;
  }
  if (flag == nullptr) {
    std::vector<absl::string_view> known;
    for (const Flag& one : flags_) known.push_back(one.name);
    return UsageError("unknown flag ", arg.substr(0, arg.find('=')), DidYouMean(name, known));
  }
  if (flag->set) return UsageError("flag --", flag->name, " is given twice");
  if (!has_value && flag->is_bool) {
    value = "true";
  } else if (!has_value) {
    // Two dashes begin the next flag; a value that begins with them takes "=".
    if (*next == args.size() || absl::StartsWith(args[*next], "--")) {
      return UsageError("flag ", arg, " wants a value");
    }
    value = args[(*next)++];
  }
  if (const absl::Status status = flag->read(value); !status.ok()) {
    return UsageError("--", flag->name, ": ", status.message());
  }
  flag->set = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FlagSet::Parse(Args args, int min_positional,
                                                        int max_positional) {
  std::vector<std::string> positional;
  bool only_positional = false;
  for (size_t next = 0; next < args.size();) {
    const std::string& arg = args[next++];
    if (arg.empty()) return UsageError("an argument is empty");
    if (only_positional || arg.size() < 2 || arg[0] != '-') {
      positional.push_back(arg);
    } else if (arg == "--") {
      only_positional = true;
    } else if (arg == "--help" || arg == "-h" || arg == "-help") {
      std::fputs(Help().c_str(), stdout);
      absl::Status status = absl::CancelledError("--help is printed");
      status.SetPayload(kHelpPayload, absl::Cord());
      return status;
    } else if (absl::Status status = ParseFlag(arg, args, &next); !status.ok()) {
      return status;
    }
  }
  const int count = static_cast<int>(positional.size());
  if (count < min_positional) return UsageError("usage: ", synopsis_);
  if (count > max_positional) {
    return UsageError("unexpected argument \"", positional[max_positional], "\"");
  }
  return positional;
}

std::string FlagSet::Help() const {
  std::string help = absl::StrCat("usage: ", synopsis_, "\n\n", description_, "\n");
  if (!flags_.empty()) absl::StrAppend(&help, "\nFlags:\n");
  for (const Flag& flag : flags_) {
    absl::StrAppend(&help, "  --", flag.name, flag.is_bool ? "" : "=...", "\n      ", flag.help);
    if (!flag.range.empty()) absl::StrAppend(&help, "  ", flag.range, ".");
    if (!flag.default_text.empty()) {
      absl::StrAppend(&help, "  Default: ", flag.default_text, ".");
    }
    absl::StrAppend(&help, "\n");
  }
  return help;
}

}  // namespace ulfd
