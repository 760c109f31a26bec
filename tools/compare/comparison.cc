// SPDX-License-Identifier: Apache-2.0
#include "tools/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/text.h"
#include "engine/tensor/tensor.h"
#include "tools/cli/text_table.h"

namespace ulfd::tools {

namespace {

// Infinities of one sign and NaNs are equal to each other.
double Distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double distance = std::abs(b - a);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

void Measure(const engine::NpyArray& a, const engine::NpyArray& b, double tolerance,
             TensorDifference& difference) {
  const std::vector<float> x = a.ToFloat32(), y = b.ToFloat32();
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double wanted = x[i], found = y[i], distance = Distance(wanted, found);
    difference.max_abs = std::max(difference.max_abs, distance);
    difference.max_rel = std::max(difference.max_rel,
                                  distance == 0 ? 0 : distance / std::max(1e-6, std::abs(wanted)));
    const double scale = std::isfinite(wanted) ? std::max(1.0, std::abs(wanted)) : 1.0;
    difference.within = difference.within && distance <= tolerance * scale;
    xx += wanted * wanted;
    yy += found * found;
    xy += wanted * found;
  }
  if (xx > 0 || yy > 0)
    difference.cosine = xx > 0 && yy > 0 ? xy / std::sqrt(xx) / std::sqrt(yy) : 0;
}

}  // namespace

Comparison Compare(const engine::NpzArrays& a, const engine::NpzArrays& b,
                   const std::vector<std::string>& order, double tolerance) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const std::string& name : order) {
    if (a.contains(name) && seen.insert(name).second) names.push_back(name);
  }
  for (const auto& [name, array] : a) {
    if (seen.insert(name).second) names.push_back(name);
  }
  Comparison comparison;
  for (const std::string& name : names) {
    TensorDifference difference{.name = name};
    const auto other = b.find(name);
    if (other == b.end()) {
      difference.problem = "missing in B";
    } else if (other->second.dims != a.at(name).dims) {
      difference.problem = absl::StrCat("shape ", engine::ToString(a.at(name).dims), " against ",
                                        engine::ToString(other->second.dims));
    } else {
      Measure(a.at(name), other->second, tolerance, difference);
    }
    difference.within = difference.within && difference.problem.empty();
    if (!difference.within && comparison.first_beyond < 0) {
      comparison.first_beyond = static_cast<int>(comparison.tensors.size());
    }
    comparison.tensors.push_back(std::move(difference));
  }
  for (const auto& [name, array] : b) {
    if (!a.contains(name)) comparison.only_in_b.push_back(name);
  }
  return comparison;
}

std::string ToText(const Comparison& comparison, double tolerance) {
  TextTable table({"tensor", "max abs>", "max rel>", "cosine>", ""});
  for (const TensorDifference& t : comparison.tensors) {
    if (!t.problem.empty()) {
      table.AddRow({t.name, "", "", "", t.problem});
      continue;
    }
    table.AddRow({t.name, absl::StrFormat("%.3g", t.max_abs), absl::StrFormat("%.3g", t.max_rel),
                  absl::StrFormat("%.9f", t.cosine), t.within ? "" : "beyond the tolerance"});
  }
  std::string text = table.ToString();
  if (!comparison.only_in_b.empty()) {
    const std::string names = absl::StrJoin(comparison.only_in_b, ", ");
    absl::StrAppend(&text, "only in B: ", Clipped(names, kMaxKeptErrorBytes), "\n");
  }
  if (comparison.first_beyond < 0) {
    absl::StrAppend(&text, comparison.tensors.size(), " tensors agree within ", tolerance, "\n");
  } else {
    const std::string& first = comparison.tensors[comparison.first_beyond].name;
    absl::StrAppend(&text, "first tensor to differ: ", Clipped(first, kMaxKeptErrorBytes), "\n");
  }
  return text;
}

}  // namespace ulfd::tools
