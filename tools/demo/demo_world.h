// The made-up world behind the demo model: categories, products and users with known preferences.
//
// Everything follows from a seed.  A category is a direction in embedding space; an item's row is
// its category's direction (and for some items a share of a related category's), its quality along
// a direction of its own, and a little noise.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_DEMO_DEMO_WORLD_H_
#define ULFD_TOOLS_DEMO_DEMO_WORLD_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ulfd::tools {

inline constexpr int kDemoDim = 16;         // Columns of each embedding table.
inline constexpr int kDemoCategories = 12;  // Ids 1..12.
inline constexpr int kDemoHistory = 50;     // Items of a user's history that the model looks at.

// Pseudo-random numbers that are the same everywhere: splitmix64.
class DemoRandom {
 public:
  explicit DemoRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // In [0, 1).
  double Uniform();
  // Mean 0, standard deviation 1, within +-6.
  double Normal();

 private:
  uint64_t state_;
};

using DemoVector = std::array<double, kDemoDim>;

struct DemoItem {
  int category = 0;
  int related = -1;      // A second category that it also belongs to; -1: none.
  double quality = 0.5;  // 0..1
  std::string name;      // Empty: one of the many that nobody named.
};

struct DemoUser {
  int taste = 0;          // Category liked without any history.
  double activity = 0.5;  // 0..1; active users click more on everything.
};

class DemoWorld {
 public:
  // `ids` are shared out: 12 categories, a quarter of the rest users, the others items.  REQUIRES:
  // ids >= 1000.
  DemoWorld(int64_t ids, uint64_t seed);

  int64_t items() const { return items_; }
  int64_t users() const { return users_; }
  // Items 0..named_items()-1 have names; item i is of category i % 12.
  int64_t named_items() const;

  static absl::string_view CategoryName(int category);
  static int64_t CategoryId(int category) { return 1 + category; }
  static int64_t ItemId(int64_t item) { return 1'000'000 + item; }
  static int64_t UserId(int64_t user) { return 2'000'000 + user; }

  DemoItem Item(int64_t item) const;
  DemoUser User(int64_t user) const;

  // Embedding rows.
  DemoVector ItemRow(int64_t item) const;
  DemoVector CategoryRow(int category) const;
  DemoVector UserRow(int64_t user) const;

  // Directions that the weights read: in item rows quality (row * direction = half the quality) and
  // presence (1 for every item, 0 for an empty slot of the history); in user rows activity.
  const DemoVector& quality_direction() const { return item_basis_[kDemoCategories]; }
  const DemoVector& presence_direction() const { return item_basis_[kDemoCategories + 1]; }
  const DemoVector& activity_direction() const { return category_basis_[kDemoCategories]; }

 private:
  using Basis = std::array<DemoVector, kDemoDim>;  // Orthonormal.
  static Basis MakeBasis(uint64_t seed);

  uint64_t seed_;
  int64_t items_, users_;
  Basis item_basis_, category_basis_;  // The first 12 directions are the categories'.
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_DEMO_DEMO_WORLD_H_
