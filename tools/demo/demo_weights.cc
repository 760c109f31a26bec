// The demo model's weights.
//
// Every planted feature is an inner product of what a layer gets; each is carried by several hidden
// units with slightly different gains, and the remaining units hold small random weights, as a
// trained network would.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <vector>

#include "absl/types/span.h"
#include "tools/demo/demo_model.h"

namespace ulfd::tools {
namespace {

constexpr int kBoth = 2 * kDemoDim;  // An item row and a category row side by side.

// Columns of "attention_input".
constexpr int kAttentionKey = kBoth, kAttentionProduct = 3 * kBoth, kAttentionWidth = 4 * kBoth;
constexpr int kAttention1 = 32, kAttention2 = 16;

// Columns of "features": user_e, query, interest, query * interest, query * sum, taste, ad_stats.
constexpr int kUser = 0, kQuery = kDemoDim, kQueryInterest = kQuery + 2 * kBoth,
              kQuerySum = kQuery + 3 * kBoth, kTaste = kQuery + 4 * kBoth,
              kStats = kTaste + kDemoDim, kFeatures = kStats + 2;
constexpr int kHidden1 = 48, kHidden2 = 16;
constexpr int kReplicas = 4;  // Hidden units per planted feature.

// Weights of a layer under construction: a vector, or a matrix [rows, columns].
struct Blob {
  int columns = 0;  // 0: a vector.
  std::vector<double> values;

  template <typename Function>
  static Blob Vector(int size, Function value) {
    Blob blob;
    for (int i = 0; i < size; ++i) blob.values.push_back(value(i));
    return blob;
  }
  static Blob Matrix(int rows, int columns, double noise, DemoRandom& random) {
    Blob blob = Vector(rows * columns, [&](int) { return noise * random.Normal(); });
    blob.columns = columns;
    return blob;
  }
  // Adds factor * direction to 16 rows of a column.
  void AddDirection(int first_row, int column, const DemoVector& direction, double factor) {
    for (int d = 0; d < kDemoDim; ++d) {
      values[(first_row + d) * columns + column] += factor * direction[d];
    }
  }
  // Adds the factor to `rows` rows of a column, which makes it sum them.
  void AddSum(int first_row, int rows, int column, double factor) {
    for (int d = 0; d < rows; ++d) values[(first_row + d) * columns + column] += factor;
  }
};

void AddLayer(const char* name, const std::vector<Blob>& blobs, ulf::NetWeightsParameter& net) {
  ulf::LayerWeightsParameter& layer = *net.add_layer_weights_params();
  layer.set_name(name);
  for (const Blob& blob : blobs) {
    ulf::BlobData& data = *layer.add_blob_datas();
    const int size = static_cast<int>(blob.values.size());
    data.add_shape(blob.columns == 0 ? size : size / blob.columns);
    if (blob.columns != 0) data.add_shape(blob.columns);
    for (const double value : blob.values) data.add_data(static_cast<float>(value));
  }
}

// First layer: "same category" units (0..11), "this slot holds an item" units (12..15), noise.
// Second layer: the same two questions, sharper.  Third: an item of the ad's category gets e^4
// times the attention of any other, an empty slot e^-17 times.
void AddAttention(const DemoWorld& world, DemoRandom& random, ulf::NetWeightsParameter& net) {
  constexpr int kSame = 12, kPresent = 4;   // Units of the first layer.
  constexpr int kSame2 = 8, kPresent2 = 4;  // And of the second.
  Blob w1 = Blob::Matrix(kAttentionWidth, kAttention1, 0.01, random);
  Blob b1{.values = std::vector<double>(kAttention1)};
  for (int unit = 0; unit < kSame + kPresent; ++unit) {
    const double jitter = 1 + 0.1 * random.Normal();
    const double gain = (unit < kSame ? 8 : 12) * jitter;
    if (unit < kSame) {
      // Similarity: category rows, and half the item rows without what every present item adds to
      // them.
      w1.AddSum(kAttentionProduct + kDemoDim, kDemoDim, unit, gain);
      w1.AddSum(kAttentionProduct, kDemoDim, unit, 0.5 * gain);
    }
    w1.AddDirection(kAttentionKey, unit, world.presence_direction(),
                    unit < kSame ? -0.5 * gain : gain);
    b1.values[unit] = (unit < kSame ? -0.75 : -0.5) * gain;
  }
  Blob w2 = Blob::Matrix(kAttention1, kAttention2, 0.02, random);
  Blob b2{.values = std::vector<double>(kAttention2)};
  for (int unit = 0; unit < kSame2 + kPresent2; ++unit) {
    const double gain = 7 * (1 + 0.1 * random.Normal());
    const int first = unit < kSame2 ? 0 : kSame, count = unit < kSame2 ? kSame : kPresent;
    w2.AddSum(first, count, unit, gain / count);
    b2.values[unit] = -0.5 * gain;
  }
  Blob w3 = Blob::Matrix(kAttention2, 1, 0.02, random);
  w3.AddSum(0, kSame2, 0, 4.0 / kSame2);
  w3.AddSum(kSame2, kPresent2, 0, 18.0 / kPresent2);
  AddLayer("attention_fc1", {w1, b1}, net);
  AddLayer("attention_fc2", {w2, b2}, net);
  AddLayer("attention_fc3", {w3, {.values = {0}}}, net);
}

// A batch normalisation whose statistics look measured and whose gamma and beta undo them.
void AddNormalization(DemoRandom& random, ulf::NetWeightsParameter& net) {
  Blob gamma, mean, variance;
  for (int i = 0; i < kFeatures; ++i) {
    mean.values.push_back(0.1 * random.Normal());
    variance.values.push_back(0.05 + 0.5 * random.Uniform());
    gamma.values.push_back(std::sqrt(variance.values.back() + 0.001));
  }
  AddLayer("normalize", {mean, gamma, mean, variance}, net);
}

// What the first layer of the tower computes: a direction of 16 columns, or a sum of columns.
struct Feature {
  int column, columns;
  const DemoVector* direction;  // Null: a sum.
  double factor;
  double effect;  // On the logit.
};

constexpr int kPlanted = 8 * kReplicas;  // Units of the first layer that compute one.

std::array<Feature, kPlanted / kReplicas> Features(const DemoWorld& world) {
  return {{
      // The attended part of the history is of the ad's category: 0..1.
      {kQueryInterest + kDemoDim, kDemoDim, nullptr, 1, 2.2},
      // How many items of the history are: 1 for ten of them.
      {kQuerySum + kDemoDim, kDemoDim, nullptr, 0.1, 1.5},
      // Items that belong to two categories are like those of both.
      {kQueryInterest, kDemoDim, nullptr, 0.5, 1.0},
      // The user's taste without any history: 0..1.
      {kTaste, kDemoDim, nullptr, 1, 0.8},
      // The ad's quality: 0..1.
      {kQuery, kDemoDim, &world.quality_direction(), 2, 2.0},
      // Freshness and discount of the ad, activity of the user.
      {kStats, 1, nullptr, 1, 0.6},
      {kStats + 1, 1, nullptr, 1, 0.4},
      {kUser, kDemoDim, &world.activity_direction(), 1, 0.3},
  }};
}

void AddFeatures(absl::Span<const Feature> features, DemoRandom& random,
                 ulf::NetWeightsParameter& net) {
  Blob w1 = Blob::Matrix(kFeatures, kHidden1, 0.003, random);
  for (int unit = 0; unit < kPlanted; ++unit) {
    const Feature& feature = features[unit / kReplicas];
    const double gain = feature.factor * (1 + 0.05 * random.Normal());
    if (feature.direction == nullptr) {
      w1.AddSum(feature.column, feature.columns, unit, gain);
    } else {
      w1.AddDirection(feature.column, unit, *feature.direction, gain);
    }
  }
  const auto noise = [&](int) { return 0.01 * random.Normal(); };
  AddLayer("fc1", {w1, Blob::Vector(kHidden1, noise)}, net);
}

void AddTower(const DemoWorld& world, DemoRandom& random, ulf::NetWeightsParameter& net) {
  const auto features = Features(world);
  AddFeatures(features, random, net);
  // Soft thresholds: a unit passes a fifth of what is far below its mean.
  Blob alpha, mean, variance;
  for (int i = 0; i < kHidden1; ++i) {
    alpha.values.push_back(0.2 + 0.02 * random.Normal());
    mean.values.push_back(0.1 + 0.05 * random.Uniform());
    variance.values.push_back(0.2 + 0.1 * random.Uniform());
  }
  AddLayer("dice1", {alpha, mean, variance}, net);

  // Twelve units that each add everything up, four of noise.
  constexpr int kSummers = 12;
  Blob w2 = Blob::Matrix(kHidden1, kHidden2, 0.01, random);
  const Blob b2 = Blob::Vector(kHidden2, [&](int unit) {
    const double bias = 0.01 * random.Normal();
    for (int i = 0; unit < kSummers && i < kPlanted; ++i) {
      const double effect = features[i / kReplicas].effect / kReplicas;
      w2.AddSum(i, 1, unit, effect * (1 + 0.2 * random.Normal()));
    }
    return bias;
  });
  AddLayer("fc2", {w2, b2}, net);
  AddLayer("prelu2", {{.values = std::vector<double>(kHidden2, 0.25)}}, net);
  Blob w3 = Blob::Matrix(kHidden2, 1, 0.02, random);
  w3.AddSum(0, kSummers, 0, 1.0 / kSummers);
  AddLayer("fc3", {w3, {.values = {-4.2}}}, net);
}

}  // namespace

ulf::NetWeightsParameter DemoWeights(const DemoWorld& world, uint64_t seed) {
  DemoRandom random(seed + 3);
  ulf::NetWeightsParameter net;
  AddAttention(world, random, net);
  AddNormalization(random, net);
  AddTower(world, random, net);
  return net;
}

}  // namespace ulfd::tools
