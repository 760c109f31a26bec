// The demo model's weights, written down instead of trained.
//
// Every planted feature is an inner product of what a layer gets; each is carried by several hidden
// units with slightly different gains, and the remaining units hold small random weights, as a
// trained network would.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>
#include <vector>

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

// A [rows, columns] weight matrix under construction.
class Matrix {
 public:
  Matrix(int rows, int columns, double noise, DemoRandom& random)
      : rows_(rows), columns_(columns), values_(static_cast<size_t>(rows) * columns) {
    for (double& value : values_) value = noise * random.Normal();
  }
  double& operator()(int row, int column) { return values_[row * columns_ + column]; }
  // Adds factor * direction to 16 rows of a column.
  void AddDirection(int first_row, int column, const DemoVector& direction, double factor) {
    for (int d = 0; d < kDemoDim; ++d) (*this)(first_row + d, column) += factor * direction[d];
  }
  // Adds the factor to `count` rows of a column, which makes it sum them.
  void AddSum(int first_row, int count, int column, double factor) {
    for (int d = 0; d < count; ++d) (*this)(first_row + d, column) += factor;
  }
  void AppendTo(ulf::LayerWeightsParameter& layer) const {
    ulf::BlobData* blob = layer.add_blob_datas();
    blob->add_shape(rows_);
    blob->add_shape(columns_);
    for (const double value : values_) blob->add_data(static_cast<float>(value));
  }

 private:
  int rows_, columns_;
  std::vector<double> values_;
};

void AppendVector(const std::vector<double>& values, ulf::LayerWeightsParameter& layer) {
  ulf::BlobData* blob = layer.add_blob_datas();
  blob->add_shape(static_cast<int>(values.size()));
  for (const double value : values) blob->add_data(static_cast<float>(value));
}

ulf::LayerWeightsParameter& AddLayer(const char* name, ulf::NetWeightsParameter& net) {
  ulf::LayerWeightsParameter& layer = *net.add_layer_weights_params();
  layer.set_name(name);
  return layer;
}

// First layer: "same category" units (0..11), "this slot holds an item" units (12..15), noise.
// Second layer: the same two questions, sharper.  Third: an item of the ad's category gets e^4
// times the attention of any other, an empty slot e^-17 times.
void AddAttention(const DemoWorld& world, DemoRandom& random, ulf::NetWeightsParameter& net) {
  constexpr int kSame = 12, kPresent = 16;   // Ends of the two ranges in layer 1.
  constexpr int kSame2 = 8, kPresent2 = 12;  // And in layer 2.
  Matrix w1(kAttentionWidth, kAttention1, 0.01, random);
  std::vector<double> b1(kAttention1, 0.0);
  for (int unit = 0; unit < kPresent; ++unit) {
    const double jitter = 1 + 0.1 * random.Normal();
    if (unit < kSame) {
      // Similarity: category rows, and half the item rows without what every present item adds to
      // them.
      const double gain = 8 * jitter;
      w1.AddSum(kAttentionProduct + kDemoDim, kDemoDim, unit, gain);
      w1.AddSum(kAttentionProduct, kDemoDim, unit, 0.5 * gain);
      w1.AddDirection(kAttentionKey, unit, world.presence_direction(), -0.5 * gain);
      b1[unit] = -0.75 * gain;
    } else {
      const double gain = 12 * jitter;
      w1.AddDirection(kAttentionKey, unit, world.presence_direction(), gain);
      b1[unit] = -0.5 * gain;
    }
  }
  Matrix w2(kAttention1, kAttention2, 0.02, random);
  std::vector<double> b2(kAttention2, 0.0);
  for (int unit = 0; unit < kPresent2; ++unit) {
    const double gain = 7 * (1 + 0.1 * random.Normal());
    const bool same = unit < kSame2;
    w2.AddSum(same ? 0 : kSame, same ? kSame : kPresent - kSame, unit,
              gain / (same ? kSame : kPresent - kSame));
    b2[unit] = -0.5 * gain;
  }
  Matrix w3(kAttention2, 1, 0.02, random);
  w3.AddSum(0, kSame2, 0, 4.0 / kSame2);
  w3.AddSum(kSame2, kPresent2 - kSame2, 0, 18.0 / (kPresent2 - kSame2));

  ulf::LayerWeightsParameter& fc1 = AddLayer("attention_fc1", net);
  w1.AppendTo(fc1);
  AppendVector(b1, fc1);
  ulf::LayerWeightsParameter& fc2 = AddLayer("attention_fc2", net);
  w2.AppendTo(fc2);
  AppendVector(b2, fc2);
  ulf::LayerWeightsParameter& fc3 = AddLayer("attention_fc3", net);
  w3.AppendTo(fc3);
  AppendVector({0.0}, fc3);
}

// A batch normalisation whose statistics look measured and whose gamma and beta undo them.
void AddNormalization(DemoRandom& random, ulf::NetWeightsParameter& net) {
  std::vector<double> beta, gamma, mean, variance;
  for (int i = 0; i < kFeatures; ++i) {
    mean.push_back(0.1 * random.Normal());
    variance.push_back(0.05 + 0.5 * random.Uniform());
    beta.push_back(mean.back());
    gamma.push_back(std::sqrt(variance.back() + 0.001));
  }
  ulf::LayerWeightsParameter& layer = AddLayer("normalize", net);
  AppendVector(beta, layer);
  AppendVector(gamma, layer);
  AppendVector(mean, layer);
  AppendVector(variance, layer);
}

// The eight planted features as columns of the first layer; `effects` gets what each adds to the
// logit per unit.
Matrix PlantFeatures(const DemoWorld& world, DemoRandom& random, std::vector<double>* effects) {
  Matrix w(kFeatures, kHidden1, 0.003, random);
  for (int unit = 0; unit < 8 * kReplicas; ++unit) {
    const double gain = 1 + 0.05 * random.Normal();
    switch (unit / kReplicas) {
      case 0:  // The attended part of the history is of the ad's category: 0..1.
        w.AddSum(kQueryInterest + kDemoDim, kDemoDim, unit, gain);
        break;
      case 1:  // How many items of the history are: 1 for ten of them.
        w.AddSum(kQuerySum + kDemoDim, kDemoDim, unit, 0.1 * gain);
        break;
      case 2:  // Items that belong to two categories are like those of both.
        w.AddSum(kQueryInterest, kDemoDim, unit, 0.5 * gain);
        break;
      case 3:  // The user's taste without any history: 0..1.
        w.AddSum(kTaste, kDemoDim, unit, gain);
        break;
      case 4:  // The ad's quality: 0..1.
        w.AddDirection(kQuery, unit, world.quality_direction(), 2 * gain);
        break;
      case 5:  // Freshness.
        w(kStats, unit) += gain;
        break;
      case 6:  // Discount.
        w(kStats + 1, unit) += gain;
        break;
      default:  // The user's activity.
        w.AddDirection(kUser, unit, world.activity_direction(), gain);
    }
  }
  *effects = {2.2, 1.5, 1.0, 0.8, 2.0, 0.6, 0.4, 0.3};
  return w;
}

void AddTower(const DemoWorld& world, DemoRandom& random, ulf::NetWeightsParameter& net) {
  std::vector<double> effects;
  const Matrix w1 = PlantFeatures(world, random, &effects);
  ulf::LayerWeightsParameter& fc1 = AddLayer("fc1", net);
  w1.AppendTo(fc1);
  std::vector<double> b1(kHidden1);
  for (double& b : b1) b = 0.01 * random.Normal();
  AppendVector(b1, fc1);

  // Soft thresholds: a unit passes a fifth of what is far below its mean.
  ulf::LayerWeightsParameter& dice = AddLayer("dice1", net);
  std::vector<double> alpha(kHidden1), mean(kHidden1), variance(kHidden1);
  for (int i = 0; i < kHidden1; ++i) {
    alpha[i] = 0.2 + 0.02 * random.Normal();
    mean[i] = 0.1 + 0.05 * random.Uniform();
    variance[i] = 0.2 + 0.1 * random.Uniform();
  }
  AppendVector(alpha, dice);
  AppendVector(mean, dice);
  AppendVector(variance, dice);

  // Twelve units that each add everything up, four of noise.
  constexpr int kSummers = 12;
  Matrix w2(kHidden1, kHidden2, 0.01, random);
  std::vector<double> b2(kHidden2);
  for (int unit = 0; unit < kHidden2; ++unit) {
    b2[unit] = 0.01 * random.Normal();
    for (int i = 0; unit < kSummers && i < 8 * kReplicas; ++i) {
      w2(i, unit) += effects[i / kReplicas] / kReplicas * (1 + 0.2 * random.Normal());
    }
  }
  ulf::LayerWeightsParameter& fc2 = AddLayer("fc2", net);
  w2.AppendTo(fc2);
  AppendVector(b2, fc2);
  ulf::LayerWeightsParameter& prelu = AddLayer("prelu2", net);
  AppendVector(std::vector<double>(kHidden2, 0.25), prelu);

  Matrix w3(kHidden2, 1, 0.02, random);
  w3.AddSum(0, kSummers, 0, 1.0 / kSummers);
  ulf::LayerWeightsParameter& fc3 = AddLayer("fc3", net);
  w3.AppendTo(fc3);
  AppendVector({-4.2}, fc3);
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
