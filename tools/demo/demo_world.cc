// The made-up world behind the demo model: categories, products and users with known preferences.
// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/demo_world.h"

#include <cassert>
#include <cmath>

namespace ulfd::tools {
namespace {

enum Category {
  kSports,
  kBooks,
  kMusic,
  kTravel,
  kCooking,
  kGaming,
  kFashion,
  kElectronics,
  kGarden,
  kPets,
  kCars,
  kHealth
};
constexpr absl::string_view kCategoryNames[kDemoCategories] = {
    "sports",  "books",       "music",  "travel", "cooking", "gaming",
    "fashion", "electronics", "garden", "pets",   "cars",    "health"};

struct NamedItem {
  absl::string_view name;
  double quality;
  int related = -1;
};
constexpr int kNamesPerCategory = 8;
constexpr NamedItem kNamed[kDemoCategories][kNamesPerCategory] = {
    {{"running shoes", 0.9},
     {"tennis racket", 0.7},
     {"football", 0.6},
     {"yoga mat", 0.5, kHealth},
     {"cycling jersey", 0.4, kFashion},
     {"ski goggles", 0.3},
     {"swim fins", 0.2},
     {"climbing rope", 0.8, kTravel}},
    {{"mystery novel", 0.9},
     {"marathon training guide", 0.7, kSports},
     {"pasta cookbook", 0.6, kCooking},
     {"poetry collection", 0.5},
     {"travel memoir", 0.4, kTravel},
     {"history atlas", 0.3},
     {"jazz biography", 0.2, kMusic},
     {"science fiction trilogy", 0.8}},
    {{"concert tickets", 0.9},
     {"acoustic guitar", 0.7},
     {"vinyl record", 0.6},
     {"headphones", 0.5, kElectronics},
     {"piano lessons", 0.4},
     {"drum sticks", 0.3},
     {"karaoke night", 0.2},
     {"festival pass", 0.8, kTravel}},
    {{"island holiday", 0.9},
     {"city weekend", 0.7},
     {"cabin suitcase", 0.6},
     {"hiking tour", 0.5, kSports},
     {"rail pass", 0.4},
     {"camper rental", 0.3, kCars},
     {"travel pillow", 0.2},
     {"safari", 0.8}},
    {{"chef's knife", 0.9},
     {"cast-iron pan", 0.7},
     {"spice set", 0.6},
     {"herb planter", 0.5, kGarden},
     {"pizza stone", 0.4},
     {"egg timer", 0.3},
     {"cake tin", 0.2},
     {"cooking class", 0.8}},
    {{"game console", 0.9, kElectronics},
     {"racing game", 0.7, kCars},
     {"strategy board game", 0.6},
     {"game controller", 0.5},
     {"puzzle box", 0.4},
     {"dice set", 0.3},
     {"arcade voucher", 0.2},
     {"role-playing game", 0.8}},
    {{"winter coat", 0.9},
     {"sneakers", 0.7, kSports},
     {"silk scarf", 0.6},
     {"leather belt", 0.5},
     {"sun hat", 0.4, kTravel},
     {"wool socks", 0.3},
     {"tie clip", 0.2},
     {"evening dress", 0.8}},
    {{"smartphone", 0.9},
     {"laptop", 0.7},
     {"tablet", 0.6},
     {"fitness tracker", 0.5, kSports},
     {"webcam", 0.4},
     {"usb hub", 0.3},
     {"phone case", 0.2},
     {"camera", 0.8}},
    {{"rose bush", 0.9},
     {"lawn mower", 0.7},
     {"garden bench", 0.6},
     {"bird feeder", 0.5, kPets},
     {"watering can", 0.4},
     {"plant pots", 0.3},
     {"weed puller", 0.2},
     {"greenhouse", 0.8}},
    {{"dog bed", 0.9},
     {"cat tree", 0.7},
     {"aquarium", 0.6},
     {"dog harness", 0.5},
     {"bird cage", 0.4},
     {"hamster wheel", 0.3},
     {"flea comb", 0.2},
     {"puppy school", 0.8}},
    {{"electric car", 0.9},
     {"roof box", 0.7, kTravel},
     {"car wash", 0.6},
     {"dash camera", 0.5, kElectronics},
     {"winter tyres", 0.4},
     {"seat covers", 0.3},
     {"air freshener", 0.2},
     {"sports car rental", 0.8}},
    {{"electric toothbrush", 0.9},
     {"vitamin pack", 0.7},
     {"massage", 0.6},
     {"protein bars", 0.5, kSports},
     {"sleep mask", 0.4, kTravel},
     {"hand cream", 0.3},
     {"cough drops", 0.2},
     {"spa day", 0.8}},
};

constexpr double kNoise = 0.03;
constexpr double kRelatedShare = 0.5;
// How an item's 0..1 quality is scaled in its row.
constexpr double kQualityScale = 0.5;

// One stream of numbers per thing, so that a row depends on nothing but the seed and its own
// number.
DemoRandom Stream(uint64_t seed, uint64_t kind, int64_t number) {
  DemoRandom random(seed * 0x9E3779B97F4A7C15u + kind * 0xD1B54A32D192ED03u +
                    static_cast<uint64_t>(number));
  random.Next();
  return random;
}

void AddScaled(const DemoVector& direction, double factor, DemoVector& sum) {
  for (int d = 0; d < kDemoDim; ++d) sum[d] += factor * direction[d];
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
    for (int j = 0; j < i; ++j) {
      double dot = 0;
      for (int d = 0; d < kDemoDim; ++d) dot += v[d] * basis[j][d];
      AddScaled(basis[j], -dot, v);
    }
    double norm = 0;
    for (const double x : v) norm += x * x;
    for (double& x : v) x /= std::sqrt(norm);
  }
  return basis;
}

int64_t DemoWorld::named_items() const { return int64_t{kDemoCategories} * kNamesPerCategory; }

absl::string_view DemoWorld::CategoryName(int category) { return kCategoryNames[category]; }

DemoItem DemoWorld::Item(int64_t item) const {
  DemoItem result;
  result.category = static_cast<int>(item % kDemoCategories);
  if (item < named_items()) {
    const NamedItem& named = kNamed[result.category][item / kDemoCategories];
    result.name = std::string(named.name);
    result.quality = named.quality;
    result.related = named.related;
    return result;
  }
  DemoRandom random = Stream(seed_, 1, item);
  result.quality = random.Uniform();
  const int other = static_cast<int>(random.Next() % kDemoCategories);
  if (random.Uniform() < 0.25 && other != result.category) result.related = other;
  return result;
}

DemoUser DemoWorld::User(int64_t user) const {
  DemoRandom random = Stream(seed_, 2, user);
  return {.taste = static_cast<int>(user % kDemoCategories), .activity = random.Uniform()};
}

DemoVector DemoWorld::ItemRow(int64_t item) const {
  const DemoItem what = Item(item);
  DemoRandom random = Stream(seed_, 3, item);
  DemoVector row;
  for (double& x : row) x = kNoise * random.Normal();
  AddScaled(item_basis_[what.category], 1, row);
  if (what.related >= 0) AddScaled(item_basis_[what.related], kRelatedShare, row);
  AddScaled(quality_direction(), kQualityScale * what.quality, row);
  AddScaled(presence_direction(), 1, row);
  return row;
}

DemoVector DemoWorld::CategoryRow(int category) const { return category_basis_[category]; }

DemoVector DemoWorld::UserRow(int64_t user) const {
  const DemoUser who = User(user);
  DemoRandom random = Stream(seed_, 4, user);
  DemoVector row;
  for (double& x : row) x = kNoise * random.Normal();
  AddScaled(category_basis_[who.taste], 1, row);
  AddScaled(activity_direction(), who.activity, row);
  return row;
}

}  // namespace ulfd::tools
