// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/canary_hash.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/embedding/key_hash.h"
#include "engine/tensor/numbers.h"
#include "server/scoring/kserve_tensors.h"
#include "server/scoring/tf_serving_codec.h"

namespace ulfd::server {
namespace {

// FNV-1a over bytes: simple to write again where users are assigned outside of the server.
class Fnv {
 public:
  void Add(absl::string_view bytes) {
    for (const char c : bytes) {
      hash_ ^= static_cast<uint8_t>(c);
      hash_ *= 0x100000001b3;
    }
  }
  template <typename T>
  void AddValue(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    Add(absl::string_view(bytes, sizeof(T)));
  }
  template <typename Values>
  void AddAll(const Values& values) {
    for (const auto value : values) AddValue(value);
  }
  int64_t hash() const { return static_cast<int64_t>(hash_); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

// For requests whose user cannot be told: any version will do.
int64_t RandomHash(const void* request) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return static_cast<int64_t>(engine::HashKey(static_cast<int64_t>(now)) ^
                              reinterpret_cast<uintptr_t>(request));
}

}  // namespace

std::optional<int64_t> HashFeature(const ulfd::v1::PredictRequest& request,
                                   absl::string_view feature) {
  Fnv hash;
  for (const ulfd::v1::Feature& user : request.user_features()) {
    if (user.name() != feature) continue;
    if (user.has_sparse()) {
      if (user.sparse().ids().empty()) return std::nullopt;
      hash.AddAll(user.sparse().ids());
    } else {
      const ulfd::v1::DenseTensor& dense = user.dense();
      if (dense.floats().empty() && dense.int32s().empty() && dense.int64s().empty()) {
        return std::nullopt;
      }
      hash.AddAll(dense.floats());
      for (const int64_t value : dense.int32s()) hash.AddValue(value);
      hash.AddAll(dense.int64s());
    }
    return hash.hash();
  }
  return std::nullopt;
}

namespace {

// The first of `rows` rows if all are equal: those of the user may be there once per ad, and there
// are as many ads as there happen to be.
template <typename T>
absl::Span<const T> FirstOfEqualRows(absl::Span<const T> values, int64_t rows) {
  if (rows < 2 || values.size() % static_cast<size_t>(rows) != 0) return values;
  const size_t row = values.size() / static_cast<size_t>(rows);
  return std::equal(values.begin() + row, values.end(), values.begin()) ? values.first(row)
                                                                        : values;
}

int FindInput(const inference::ModelInferRequest& request, absl::string_view name) {
  for (int i = 0; i < request.inputs_size(); ++i) {
    if (request.inputs(i).name() == name) return i;
  }
  return -1;
}

// Empty if T does not have them all.
template <typename T>
std::vector<T> NumbersOf(const inference::ModelInferRequest& request, int input) {
  return engine::NumbersAs<T>(NumbersIn(request, input), {}, engine::Fractions::kCut, "")
      .value_or(std::vector<T>());
}

// How many rows ids have, by the numbers of ids per row; 1 where they are not all the same, or not
// there.
int64_t RowsOfSegments(const inference::ModelInferRequest& request, int input) {
  if (input < 0 || request.inputs(input).shape_size() != 1) return 1;
  const int64_t rows = request.inputs(input).shape(0);
  const auto counts = NumbersOf<int64_t>(request, input);
  return rows > 1 && FirstOfEqualRows<int64_t>(counts, rows).size() < counts.size() ? rows : 1;
}

// The same of every API and of every type.
template <typename T>
std::optional<int64_t> HashOf(const inference::ModelInferRequest& request, int input,
                              int64_t rows) {
  const std::vector<T> values = NumbersOf<T>(request, input);
  if (values.empty()) return std::nullopt;
  Fnv hash;
  hash.AddAll(FirstOfEqualRows<T>(values, rows));
  return hash.hash();
}

}  // namespace

std::optional<int64_t> HashFeature(const inference::ModelInferRequest& request,
                                   absl::string_view feature) {
  int input = FindInput(request, feature);
  int64_t rows = 1;
  if (input >= 0) {
    const auto& shape = request.inputs(input).shape();
    if (!shape.empty()) rows = shape[0];
  } else {
    input = FindInput(request, absl::StrCat(feature, ".ids"));
    rows = RowsOfSegments(request, FindInput(request, absl::StrCat(feature, ".segments")));
  }
  if (input < 0) return std::nullopt;
  return engine::IsFloat(NumbersIn(request, input).type) ? HashOf<float>(request, input, rows)
                                                         : HashOf<int64_t>(request, input, rows);
}

std::optional<int64_t> HashFeature(const tensorflow::serving::PredictRequest& request,
                                   absl::string_view feature) {
  inference::ModelInferRequest alone;
  for (const char* part : {"", ".ids", ".segments"}) {
    const auto input = InputAlone(request, absl::StrCat(feature, part));
    if (input.has_value()) alone.MergeFrom(*input);
  }
  return HashFeature(alone, feature);
}

template <typename Request>
int64_t HashUser(const CanaryConfig& canary, const MetadataLookup& metadata,
                 const Request& request) {
  if (!canary.metadata.empty()) {
    const absl::string_view user = metadata(canary.metadata);
    if (user.empty()) return RandomHash(&request);
    Fnv hash;
    hash.Add(user);
    return hash.hash();
  }
  if (canary.feature.empty()) return RandomHash(&request);
  const std::optional<int64_t> hash = HashFeature(request, canary.feature);
  return hash.has_value() ? *hash : RandomHash(&request);
}

template int64_t HashUser(const CanaryConfig&, const MetadataLookup&,
                          const ulfd::v1::PredictRequest&);
template int64_t HashUser(const CanaryConfig&, const MetadataLookup&,
                          const inference::ModelInferRequest&);
template int64_t HashUser(const CanaryConfig&, const MetadataLookup&,
                          const tensorflow::serving::PredictRequest&);

}  // namespace ulfd::server
