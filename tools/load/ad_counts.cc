// SPDX-License-Identifier: Apache-2.0
#include "tools/load/ad_counts.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::tools {
namespace {

absl::StatusOr<int64_t> ParseCount(absl::string_view text) {
  int64_t count = 0;
  if (absl::SimpleAtoi(text, &count) && count >= 1 && count <= AdCounts::kMaxAds) return count;
  return InvalidArgument("\"", text, "\", want a number in 1..", AdCounts::kMaxAds);
}

struct LogNormal {
  double median = 100, sigma = 1;
  int64_t min = 1, max = AdCounts::kMaxAds;
};

absl::StatusOr<LogNormal> ParseLogNormal(absl::string_view text) {
  LogNormal shape;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(part, '=');
    if (field.first == "min" || field.first == "max") {
      ASSIGN_OR_RETURN((field.first == "min" ? shape.min : shape.max), ParseCount(field.second));
      continue;
    }
    double* const target = field.first == "median"  ? &shape.median
                           : field.first == "sigma" ? &shape.sigma
                                                    : nullptr;
    if (target == nullptr) {
      return InvalidArgument("lognormal: \"", part, "\", want median=, sigma=, min= or max=");
    }
    const bool sigma = target == &shape.sigma;
    if (!absl::SimpleAtod(field.second, target) || !std::isfinite(*target) || *target < 0 ||
        (!sigma && *target < 1) || (sigma && *target > 10)) {
      return InvalidArgument("lognormal: \"", part, "\", want ", sigma ? "0..10" : "1 or more");
    }
  }
  if (shape.min > shape.max) {
    return InvalidArgument("lognormal: min=", shape.min, " is above max=", shape.max);
  }
  return shape;
}

struct Mix {
  std::vector<int64_t> counts;
  std::vector<double> up_to;  // Shares, summed up.
};

absl::StatusOr<Mix> ParseMix(absl::string_view text) {
  Mix mix;
  double sum = 0;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(part, '@');
    ASSIGN_OR_RETURN(mix.counts.emplace_back(), ParseCount(field.first));
    double share = 0;
    if (!absl::SimpleAtod(field.second, &share) || !std::isfinite(share) || share <= 0) {
      return InvalidArgument("mix: \"", part, "\", want ADS@SHARE with a share above 0");
    }
    mix.up_to.push_back(sum += share);
  }
  return mix;
}

}  // namespace

absl::StatusOr<AdCounts> AdCounts::Parse(absl::string_view text) {
  if (absl::ConsumePrefix(&text, "lognormal:")) {
    ASSIGN_OR_RETURN(const LogNormal shape, ParseLogNormal(text));
    return AdCounts([shape](Random& random) {
      const double value = shape.median * std::exp(shape.sigma * random.Normal());
      return std::clamp(static_cast<int64_t>(std::llround(std::min(value, 1e9))), shape.min,
                        shape.max);
    });
  }
  if (absl::ConsumePrefix(&text, "uniform:")) {
    const size_t dots = text.find("..");
    if (dots == absl::string_view::npos) {
      return InvalidArgument("uniform: \"", text, "\", want LOW..HIGH");
    }
    ASSIGN_OR_RETURN(const int64_t low, ParseCount(text.substr(0, dots)));
    ASSIGN_OR_RETURN(const int64_t high, ParseCount(text.substr(dots + 2)));
    if (low > high) {
      return InvalidArgument("uniform: ", low, " is above ", high);
    }
    return AdCounts([low, high](Random& random) {
      return low + static_cast<int64_t>(random.Below(static_cast<uint64_t>(high - low + 1)));
    });
  }
  if (absl::ConsumePrefix(&text, "mix:")) {
    ASSIGN_OR_RETURN(Mix parsed, ParseMix(text));
    return AdCounts([mix = std::move(parsed)](Random& random) {
      const double at = random.Uniform() * mix.up_to.back();
      const auto chosen = std::upper_bound(mix.up_to.begin(), mix.up_to.end(), at);
      return mix.counts[std::min<size_t>(chosen - mix.up_to.begin(), mix.counts.size() - 1)];
    });
  }
  ASSIGN_OR_RETURN(const int64_t count, ParseCount(text));
  return AdCounts([count](Random&) { return count; });
}

AdCounts AdCounts::Empirical(std::vector<int64_t> counts) {
  const auto shared = std::make_shared<const std::vector<int64_t>>(std::move(counts));
  return AdCounts([shared](Random& random) { return (*shared)[random.Below(shared->size())]; });
}

}  // namespace ulfd::tools
