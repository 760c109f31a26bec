// How many ads the requests of a load have.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_AD_COUNTS_H_
#define ULFD_TOOLS_LOAD_AD_COUNTS_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/load/random.h"

namespace ulfd::tools {

// A distribution over 1, 2, ...  Copyable; thread-safe.
class AdCounts {
 public:
  static constexpr int64_t kMaxAds = 1000000;

  // Reads
  //   200                                           every request
  //   uniform:10..500
  //   lognormal:median=100,sigma=1,min=1,max=2000   min and max may be left out
  //   mix:10@95,2000@5                              sizes with their shares
  // INVALID_ARGUMENT says what is wrong with which part.
  static absl::StatusOr<AdCounts> Parse(absl::string_view text);
  // Each of these as often as it is there.  REQUIRES: not empty.
  static AdCounts Empirical(std::vector<int64_t> counts);

  int64_t Draw(Random& random) const { return draw_(random); }

 private:
  explicit AdCounts(std::function<int64_t(Random&)> draw) : draw_(std::move(draw)) {}
  std::function<int64_t(Random&)> draw_;
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_AD_COUNTS_H_
