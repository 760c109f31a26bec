// The flags of a program or of one of its commands: read, explained, and errors in them named.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_FLAGS_FLAG_SET_H_
#define ULFD_BASE_FLAGS_FLAG_SET_H_

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/flags/marshalling.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace ulfd {

using Args = absl::Span<const std::string>;

// The command line is wrong, as opposed to what it asked for: exit code 2 and a pointer to --help.
absl::Status UsageError(absl::string_view message);
template <typename... Parts>
absl::Status UsageError(const absl::AlphaNum& first, const absl::AlphaNum& second,
                        const Parts&... more) {
  return UsageError(absl::StrCat(first, second, more...));
}
bool IsUsageError(const absl::Status& status);
// The command line asked for help alone, which is on standard output: exit code 0.
bool IsHelpPrinted(const absl::Status& status);

// The flags of one program or command.  Values are read and printed by Abseil's flag marshalling,
// but a flag belongs to its set: one that another command knows is an error, which Abseil's global
// flags cannot say.
class FlagSet {
 public:
  // `synopsis`: "ulf inspect MODELDIR"; `description`: a paragraph or more for --help.
  FlagSet(std::string synopsis, std::string description)
      : synopsis_(std::move(synopsis)), description_(std::move(description)) {}

  // `value` holds the default and outlives Parse.  A number or duration may have a range; defaults
  // are not checked.
  template <typename T>
  void Add(const std::string& name, const std::string& help, T* value,
           std::type_identity_t<std::optional<T>> min = std::nullopt,
           std::type_identity_t<std::optional<T>> max = std::nullopt) {
    Flag flag{.name = name, .help = help, .is_bool = std::is_same_v<T, bool>};
    if (!flag.is_bool || absl::UnparseFlag<T>(*value) == "true") {
      flag.default_text = absl::UnparseFlag<T>(*value);
    }
    std::string wanted;
    if constexpr (std::is_same_v<T, bool>) {
      wanted = "true or false";
    } else if constexpr (std::is_same_v<T, absl::Duration>) {
      wanted = "a time such as 250ms, 10s or 2h";
    } else if constexpr (std::is_arithmetic_v<T>) {
      wanted = std::is_integral_v<T> ? "a whole number" : "a number";
    }
    if constexpr (std::is_same_v<T, absl::Duration>) {
      if (min)
        flag.range = Range(absl::FormatDuration(*min), max ? absl::FormatDuration(*max) : "");
    } else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      if (min) flag.range = Range(absl::StrCat(*min), max ? absl::StrCat(*max) : "");
    }
    flag.read = [=, range = flag.range](const std::string& text) {
      std::string error;
      bool good = absl::ParseFlag<T>(text, value, &error);
      // Abseil takes " 5", "+5" and "010", too.
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        good = good && absl::UnparseFlag(*value) == text;
      }
      if (!good) {
        return UsageError("\"", text, "\", want ", wanted, range.empty() ? "" : ", ", range);
      }
      const bool in_range = (!min || *value >= *min) && (!max || *value <= *max);
      return in_range ? absl::OkStatus() : UsageError(text, ", want ", range);
    };
    flags_.push_back(std::move(flag));
  }
  // A flag whose value `read` takes, or says what it found and wants: "many, want 1 to 3".
  void AddRead(const std::string& name, const std::string& help,
               std::function<absl::Status(const std::string&)> read);

  // Takes --name=value, --name value, --bool and --nobool; returns the positional arguments: the
  // others, and everything after "--".  --help prints and is a status of its own (IsHelpPrinted).
  // A usage error names an unknown flag and the closest ones, a flag that is repeated, malformed or
  // out of range, or a wrong number of positional arguments.
  absl::StatusOr<std::vector<std::string>> Parse(Args args, int min_positional, int max_positional);
  // Whether the command line set that flag.
  bool IsSet(absl::string_view name) const;
  // A usage error, "--NAME: only for WHAT", if the command line set one of those flags although it
  // does not apply: none is taken and ignored.
  absl::Status Only(bool applies, absl::string_view what,
                    std::initializer_list<absl::string_view> names) const;

 private:
  struct Flag {
    std::string name, help, default_text;
    bool is_bool = false;
    std::string range;  // "1 to 10"; empty: any value.
    std::function<absl::Status(const std::string&)> read;
    bool set = false;
  };
  static std::string Range(const std::string& min, const std::string& max) {
    return max.empty() ? min + " or more" : min + " to " + max;
  }
  Flag* Find(absl::string_view name);
  absl::Status ParseFlag(absl::string_view arg, Args args, size_t* next);
  std::string Help() const;

  std::string synopsis_, description_;
  std::vector<Flag> flags_;
};

}  // namespace ulfd

#endif  // ULFD_BASE_FLAGS_FLAG_SET_H_
