// Valid requests for a model, made up: users and ids as frequent as in life, the rest at random.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_RANDOM_REQUESTS_H_
#define ULFD_TOOLS_LOAD_RANDOM_REQUESTS_H_

#include <cstdint>
#include <map>
#include <string>

#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"
#include "tools/load/ad_counts.h"
#include "tools/load/model_inputs.h"
#include "tools/load/zipf.h"

namespace ulfd::tools {

struct RandomRequestOptions {
  AdCounts ads = *AdCounts::Parse("200");
  int64_t users = 100000;  // >= 1
  double user_zipf = 1;    // >= 0
  int64_t first_id = 1, last_id = 100000;
  double id_zipf = 0.8;                        // >= 0
  int64_t user_ids = 20, ad_ids = 1;           // Per row of a sparse feature of user and ads, >= 0.
  std::map<std::string, int64_t> feature_ids;  // The same for features by name.
  int64_t first_int = 1, last_int = 1;         // Elements of dense integer inputs.
  uint64_t seed = 1;
};

// Which request: the same user always has the same features.
struct RequestChoice {
  int64_t user = 0;
  int64_t ads = 0;
  uint64_t number = 0;  // Tells requests of one user apart.
};

// Thread-safe.
class RandomRequests {
 public:
  RandomRequests(ModelInputs inputs, RandomRequestOptions options);

  // The `number`-th request of the load.
  RequestChoice Choose(uint64_t number) const;
  // Fills the features, not the model.
  void Fill(const RequestChoice& choice, ulfd::v1::PredictRequest& request) const;
  // Fills inputs and raw contents, not the model.
  void Fill(const RequestChoice& choice, inference::ModelInferRequest& request) const;

  // Feature names in `feature_ids` that the model has not: INVALID_ARGUMENT.
  absl::Status CheckFeatureNames() const;
  // Whether the first request has at most kMostValues of each input: FAILED_PRECONDITION.
  absl::Status CheckSize() const;

 private:
  int64_t IdsPerRow(const SparseInput& input) const;
  std::vector<int64_t> DrawIds(Random& random, int64_t count) const;
  // Streams of random numbers for what belongs to the user and for what belongs to the request.
  Random StreamOf(const RequestChoice& choice, bool of_user) const;

  const ModelInputs inputs_;
  const RandomRequestOptions options_;
  const Zipf users_, ids_;
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_RANDOM_REQUESTS_H_
