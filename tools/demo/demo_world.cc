// The made-up shop behind the demo model: categories, products and users with known preferences.
// SPDX-License-Identifier: Apache-2.0
#include <cassert>
#include <cmath>

#include "tools/demo/demo_model.h"

namespace ulfd::tools {
namespace {

// A category, and the two items of it that are ads of the example requests.
struct Shelf {
  absl::string_view category, best, second;
  int related = -1, second_related = -1;  // Rows of this table.
};
constexpr Shelf kShelves[kDemoCategories] = {
    {"sports", "running shoes", "tennis racket"},
    {"books", "mystery novel", "marathon training guide", -1, 0},
    {"music", "concert tickets", "acoustic guitar"},
    {"travel", "island holiday", "city weekend"},
    {"cooking", "chef's knife", "cast-iron pan"},
    {"gaming", "game console", "racing game", 7, 10},
    {"fashion", "winter coat", "sneakers", -1, 0},
    {"electronics", "smartphone", "laptop"},
    {"garden", "rose bush", "lawn mower"},
    {"pets", "dog bed", "cat tree"},
    {"cars", "electric car", "roof box", -1, 3},
    {"health", "electric toothbrush", "vitamin pack"},
};

// One stream of numbers per thing, so that a row depends on nothing but the seed and its own
// number.
DemoRandom Stream(uint64_t seed, uint64_t kind, int64_t number) {
  DemoRandom random(seed * 0x9E3779B97F4A7C15u + kind * 0xD1B54A32D192ED03u +
                    static_cast<uint64_t>(number));
  random.Next();
  return random;
}

DemoVector Noise(DemoRandom random) {
  DemoVector row;
  for (double& x : row) x = 0.03 * random.Normal();
  return row;
}

void AddScaled(const DemoVector& direction, double factor, DemoVector& sum) {
  for (int d = 0; d < kDemoDim; ++d) sum[d] += factor * direction[d];
}

double Dot(const DemoVector& a, const DemoVector& b) {
  double dot = 0;
  for (int d = 0; d < kDemoDim; ++d) dot += a[d] * b[d];
  return dot;
}

}  // namespace

uint64_t DemoRandom::Next() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double DemoRandom::Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

double DemoRandom::Normal() {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += Uniform();
  return sum;
}

DemoWorld::DemoWorld(int64_t ids, uint64_t seed)
    : seed_(seed),
      items_(ids - kDemoCategories - (ids - kDemoCategories) / 4),
      users_((ids - kDemoCategories) / 4),
      item_basis_(MakeBasis(seed + 1)),
      category_basis_(MakeBasis(seed + 2)) {
  assert(ids >= 1000);
}

// Gram-Schmidt on random vectors.
DemoWorld::Basis DemoWorld::MakeBasis(uint64_t seed) {
  DemoRandom random(seed * 0x2545F4914F6CDD1Du);
  Basis basis;
  for (int i = 0; i < kDemoDim; ++i) {
    DemoVector& v = basis[i];
    for (double& x : v) x = random.Normal();
    for (int j = 0; j < i; ++j) AddScaled(basis[j], -Dot(v, basis[j]), v);
    const double norm = std::sqrt(Dot(v, v));
    for (double& x : v) x /= norm;
  }
  return basis;
}

absl::string_view DemoWorld::CategoryName(int category) { return kShelves[category].category; }

DemoItem DemoWorld::Item(int64_t item) const {
  const int category = static_cast<int>(item % kDemoCategories);
  const Shelf& shelf = kShelves[category];
  if (item < kDemoCategories) return {category, shelf.related, 0.9, shelf.best};
  if (item < kDemoAds) return {category, shelf.second_related, 0.7, shelf.second};
  DemoRandom random = Stream(seed_, 1, item);
  const double quality = random.Uniform();
  const int other = static_cast<int>(random.Next() % kDemoCategories);
  return {category, random.Uniform() < 0.25 && other != category ? other : -1, quality, ""};
}

DemoVector DemoWorld::ItemRow(int64_t item) const {
  const DemoItem what = Item(item);
  DemoVector row = Noise(Stream(seed_, 3, item));
  AddScaled(item_basis_[what.category], 1, row);
  if (what.related >= 0) AddScaled(item_basis_[what.related], 0.5, row);
  AddScaled(quality_direction(), 0.5 * what.quality, row);
  AddScaled(presence_direction(), 1, row);
  return row;
}

DemoVector DemoWorld::UserRow(int64_t user) const {
  DemoVector row = Noise(Stream(seed_, 4, user));
  AddScaled(category_basis_[user % kDemoCategories], 1, row);
  AddScaled(activity_direction(), Stream(seed_, 2, user).Uniform(), row);
  return row;
}

}  // namespace ulfd::tools
