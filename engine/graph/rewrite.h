// What the optimiser is asked for and what it says it did.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_REWRITE_H_
#define ULFD_ENGINE_GRAPH_REWRITE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ulfd::engine {

// Work of one run as a function of the number of ads: per_user + ads * per_ad.
struct Work {
  double per_user = 0, per_ad = 0;

  double At(double ads) const { return per_user + ads * per_ad; }
  Work& operator+=(const Work& other) {
    per_user += other.per_user;
    per_ad += other.per_ad;
    return *this;
  }
  friend Work operator-(const Work& a, const Work& b) {
    return {a.per_user - b.per_user, a.per_ad - b.per_ad};
  }
};

// What nodes cost: floating-point operations, and bytes of tensors read and written.
struct Cost {
  Work flops, bytes;

  Cost& operator+=(const Cost& other) {
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
};

// One thing that a pass did.
struct Rewrite {
  std::string pass;
  std::string text;         // "q, k, q - k, q * k -> ...", for people.
  std::vector<int> layers;  // Positions in the file of the layers concerned, ascending.
  Cost saved;               // Negative where more is done (the user's part may grow).
};

struct PassOptions {
  // Leaves out every pass that changes the order of additions or multiplications.
  bool exact = false;
  // Names of passes to leave out.  For tests and for finding a culprit.
  std::vector<std::string> skip;
  // From how many columns on that an ad's inputs alone decide their product is cut off from the
  // rest, for a cache of ads; the default: never.
  int64_t item_columns = INT64_MAX;
  // How many bytes of weights the passes may copy to change them.  A pass that would take more
  // leaves the layer as it is.
  int64_t copy_bytes = INT64_MAX;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_REWRITE_H_
