// Two sets of tensors side by side: what `ulf compare` prints.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_COMPARE_COMPARISON_H_
#define ULFD_TOOLS_COMPARE_COMPARISON_H_

#include <string>
#include <vector>

#include "engine/weights/npz.h"

namespace ulfd::tools {

struct TensorDifference {
  std::string name;
  // Largest |b - a|; infinity where one is NaN or infinite and the other not so.
  double max_abs = 0;
  double max_rel = 0;  // Largest |b - a| / max(1e-6, |a|).
  double cosine = 1;   // Of both as vectors; 1 if both are zero.
  // Empty, or why there are no figures: "missing in B", "shape [2] against [3]".
  std::string problem;
  bool within = true;  // Every element within tolerance * max(1, |a|).
};

struct Comparison {
  std::vector<TensorDifference> tensors;  // In the order asked for.
  int first_beyond = -1;                  // Index of the first that is not within the tolerance.
  std::vector<std::string> only_in_b;     // Not compared.
};

// Compares every array of `a` with the one of that name in `b`.  `order`: names in the order of the
// graph; arrays that it lacks follow by name.
Comparison Compare(const engine::NpzArrays& a, const engine::NpzArrays& b,
                   const std::vector<std::string>& order, double tolerance);

// A table and a last line that says where the two begin to differ.
std::string ToText(const Comparison& comparison, double tolerance);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_COMPARE_COMPARISON_H_
