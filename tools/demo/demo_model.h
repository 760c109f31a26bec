// The demo model: a Deep Interest Network over a made-up shop, with weights that are written down
// instead of trained.
//
// Everything follows from a seed.  A category is a direction in embedding space; an item's row is
// its category's direction (and for some items a share of a related category's), its quality along
// a direction of its own, and a little noise.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_DEMO_DEMO_MODEL_H_
#define ULFD_TOOLS_DEMO_DEMO_MODEL_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/ulf.pb.h"

namespace ulfd::tools {

inline constexpr int kDemoDim = 16;         // Columns of each embedding table.
inline constexpr int kDemoCategories = 12;  // Ids 1..12.
inline constexpr int kDemoAds = 24;         // The first items; they have names.

// Pseudo-random numbers that are the same everywhere: splitmix64.
class DemoRandom {
 public:
  explicit DemoRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  double Uniform();  // In [0, 1).
  double Normal();   // Mean 0, standard deviation 1, within +-6.

 private:
  uint64_t state_;
};

using DemoVector = std::array<double, kDemoDim>;

struct DemoItem {
  int category = 0;        // Item i is of category i % 12.
  int related = -1;        // A second category that it also belongs to; -1: none.
  double quality = 0.5;    // 0..1
  absl::string_view name;  // Of the first kDemoAds.
};

class DemoWorld {
 public:
  // `ids` are shared out: 12 categories, a quarter of the rest users, the others items.  REQUIRES:
  // ids >= 1000.
  DemoWorld(int64_t ids, uint64_t seed);

  int64_t items() const { return items_; }
  int64_t users() const { return users_; }

  static absl::string_view CategoryName(int category);
  static int64_t CategoryId(int64_t category) { return 1 + category; }
  static int64_t ItemId(int64_t item) { return 1'000'000 + item; }
  static int64_t UserId(int64_t user) { return 2'000'000 + user; }

  DemoItem Item(int64_t item) const;

  // Embedding rows.  User i likes category i % 12 without any history; active users click more on
  // everything.
  DemoVector ItemRow(int64_t item) const;
  DemoVector CategoryRow(int64_t category) const { return category_basis_[category]; }
  DemoVector UserRow(int64_t user) const;

  // Directions that the weights read: in item rows quality (row * direction = half the quality) and
  // presence (1 for every item, 0 for an empty slot of the history); in user rows activity, 0..1.
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

// Writes example requests for a model of that name into the directory, which exists: users whose
// preferences a reader can see, and two ads of every category.
absl::Status WriteDemoRequests(const DemoWorld& world, const std::string& model,
                               const std::string& directory);

// The weights that plant the preferences; the same for every number of ids, except that they read
// the world's directions.
ulf::NetWeightsParameter DemoWeights(const DemoWorld& world, uint64_t seed);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_DEMO_DEMO_MODEL_H_
