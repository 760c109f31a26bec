// What the subcommands of `ulf` share: their table row, their flags, and how they report errors.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLI_COMMAND_H_
#define ULFD_TOOLS_CLI_COMMAND_H_

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/flags/marshalling.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace ulfd::tools {

using Args = absl::Span<const std::string>;

// One row per subcommand (see main.cc).
struct Command {
  absl::string_view name;
  absl::string_view summary;  // One line for `ulf help`.
  // `args` are those after the subcommand's name.  Prints results to standard output.
  absl::Status (*run)(Args args) = nullptr;
};

// The command line is wrong, as opposed to what it asked for: exit code 2 and a pointer to --help.
absl::Status UsageError(absl::string_view message);
bool IsUsageError(const absl::Status& status);

// The flags of one subcommand.  Values are read and printed by Abseil's flag marshalling, but a
// flag belongs to its subcommand: one that another subcommand knows is an error, which Abseil's
// global flags cannot say.
class FlagSet {
 public:
  // `synopsis`: "inspect MODELDIR"; `description`: a paragraph or more for --help.
  FlagSet(std::string synopsis, std::string description)
      : synopsis_(std::move(synopsis)), description_(std::move(description)) {}

  // `value` holds the default and outlives Parse.
  template <typename T>
  void Add(const std::string& name, const std::string& help, T* value) {
    Flag flag{.name = name, .help = help, .is_bool = std::is_same_v<T, bool>};
    if (!flag.is_bool || absl::UnparseFlag<T>(*value) == "true") {
      flag.default_text = absl::UnparseFlag<T>(*value);
    }
    if constexpr (std::is_same_v<T, bool>) {
      flag.wanted = "true or false";
    } else if constexpr (std::is_same_v<T, absl::Duration>) {
      flag.wanted = "a time such as 250ms, 10s or 2h";
    } else if constexpr (std::is_arithmetic_v<T>) {
      flag.wanted = std::is_integral_v<T> ? "a whole number" : "a number";
    }
    flag.parse = [value](absl::string_view text) {
      std::string error;
      if (!absl::ParseFlag<T>(text, value, &error)) return false;
      // Abseil takes " 5", "+5" and "010", too.
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        return absl::UnparseFlag(*value) == text;
      }
      return true;
    };
    flags_.push_back(std::move(flag));
  }
  // The same for a number or duration that must be `min` or more, and at most `max` if there is
  // one.  Defaults are not checked.
  template <typename T>
  void Add(const std::string& name, const std::string& help, T* value, std::type_identity_t<T> min,
           std::type_identity_t<std::optional<T>> max = std::nullopt) {
    Add(name, help, value);
    const auto text = [](T end) {
      if constexpr (std::is_same_v<T, absl::Duration>)
        return absl::FormatDuration(end);
      else
        return absl::StrCat(end);
    };
    flags_.back().range = text(min) + (max ? " to " + text(*max) : " or more");
    flags_.back().in_range = [=] { return *value >= min && (!max || *value <= *max); };
  }

  // Takes --name=value, --name value, --bool and --nobool; everything after "--" is positional.
  // Fills `positional` with the other arguments.  `*help` is set, and help printed, for --help.
  // Otherwise a usage error names an unknown flag and the closest ones, a flag that is repeated,
  // malformed or out of range, or a wrong number of positional arguments.
  absl::Status Parse(Args args, int min_positional, int max_positional,
                     std::vector<std::string>* positional, bool* help);
  // Whether the command line set that flag.
  bool IsSet(absl::string_view name) const;

 private:
  struct Flag {
    std::string name, help, default_text;
    bool is_bool = false;
    std::function<bool(absl::string_view)> parse;
    std::string wanted;              // "a whole number"; empty: any text.
    std::string range;               // "1 to 10"; empty: any value.
    std::function<bool()> in_range;  // Of what was parsed.
    bool set = false;
  };
  Flag* Find(absl::string_view name);
  absl::Status ParseFlag(absl::string_view arg, Args args, size_t* next);
  std::string Help() const;

  std::string synopsis_, description_;
  std::vector<Flag> flags_;
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLI_COMMAND_H_
