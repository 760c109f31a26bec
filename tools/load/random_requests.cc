// SPDX-License-Identifier: Apache-2.0
#include "tools/load/random_requests.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"

namespace ulfd::tools {
namespace {

int64_t ElementsPerRow(const DenseInput& input) {
  int64_t count = 1;
  for (const int64_t dim : input.dims) count *= dim;
  return count;
}

float DrawFloat(Random& random) { return static_cast<float>(2 * random.Uniform() - 1); }

template <typename T>
void Put(T value, char* to) {
  std::memcpy(to, &value, sizeof(T));
}

template <typename T>
std::string RawBytes(const T* data, size_t count) {
  return std::string(reinterpret_cast<const char*>(data), count * sizeof(T));
}

void AddRaw(const std::string& name, absl::string_view datatype, const std::vector<int64_t>& shape,
            std::string bytes, inference::ModelInferRequest& request) {
  auto* tensor = request.add_inputs();
  tensor->set_name(name);
  tensor->set_datatype(std::string(datatype));
  for (const int64_t dim : shape) tensor->add_shape(dim);
  request.add_raw_input_contents(std::move(bytes));
}

}  // namespace

RandomRequests::RandomRequests(ModelInputs inputs, RandomRequestOptions options)
    : inputs_(std::move(inputs)),
      options_(std::move(options)),
      users_(options_.users, options_.user_zipf),
      ids_(options_.last_id - options_.first_id + 1, options_.id_zipf) {}

absl::Status RandomRequests::CheckFeatureNames() const {
  for (const auto& [name, count] : options_.feature_ids) {
    bool known = false;
    std::string names;
    for (const SparseInput& input : inputs_.sparse) {
      known |= input.name == name;
      absl::StrAppend(&names, names.empty() ? "" : ", ", input.name);
    }
    if (known) continue;
    return InvalidArgument("--feature_ids: the model has no sparse feature \"", name,
                           names.empty() ? "\"; it has none" : "\"; it has ", names);
  }
  return absl::OkStatus();
}

absl::Status RandomRequests::CheckSize() const {
  const int64_t ads = Choose(0).ads;
  for (const DenseInput& input : inputs_.dense) {
    const int64_t values = ElementsPerRow(input);
    if (input.of_user || values <= kMostValues / ads) continue;
    return FailedPrecondition("input \"", input.name, "\": ", ads, " ads with ", values,
                              " values each, want at most ", kMostValues, " in a request");
  }
  return absl::OkStatus();
}

RequestChoice RandomRequests::Choose(uint64_t number) const {
  Random random(options_.seed, number);
  RequestChoice choice{.number = number};
  choice.user = users_.Draw(random);
  choice.ads = options_.ads.Draw(random);
  return choice;
}

Random RandomRequests::StreamOf(const RequestChoice& choice, bool of_user) const {
  if (of_user) return Random(~options_.seed, static_cast<uint64_t>(choice.user));
  return Random(options_.seed + 0x5851F42D4C957F2D, choice.number);
}

int64_t RandomRequests::IdsPerRow(const SparseInput& input) const {
  const auto stated = options_.feature_ids.find(input.name);
  if (stated != options_.feature_ids.end()) return stated->second;
  const int64_t ids = input.of_user ? options_.user_ids : options_.ad_ids;
  return input.max_ids_per_row <= 0 ? ids : std::min(ids, input.max_ids_per_row);
}

std::vector<int64_t> RandomRequests::DrawIds(Random& random, int64_t count) const {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (int64_t& id : ids) id = options_.first_id + ids_.Draw(random);
  return ids;
}

void RandomRequests::Fill(const RequestChoice& choice, ulfd::v1::PredictRequest& request) const {
  Random user = StreamOf(choice, true), ad = StreamOf(choice, false);
  for (const SparseInput& input : inputs_.sparse) {
    const int64_t per_row = IdsPerRow(input), rows = input.of_user ? 1 : choice.ads;
    auto* feature = input.of_user ? request.add_user_features() : request.add_ad_features();
    feature->set_name(input.name);
    const std::vector<int64_t> ids = DrawIds(input.of_user ? user : ad, per_row * rows);
    auto* sparse = feature->mutable_sparse();
    sparse->mutable_ids()->Add(ids.begin(), ids.end());
    if (!input.of_user && per_row != 1) {
      sparse->mutable_counts()->Resize(static_cast<int>(rows), static_cast<int32_t>(per_row));
    }
  }
  for (const DenseInput& input : inputs_.dense) {
    const int64_t rows = input.of_user ? input.user_rows : choice.ads;
    const auto count = static_cast<int>(rows * ElementsPerRow(input));
    auto* feature = input.of_user ? request.add_user_features() : request.add_ad_features();
    feature->set_name(input.name);
    auto* dense = feature->mutable_dense();
    dense->add_shape(rows);
    for (const int64_t dim : input.dims) dense->add_shape(dim);
    Random& random = input.of_user ? user : ad;
    const auto draw = [&] {
      const auto range = static_cast<uint64_t>(options_.last_int - options_.first_int + 1);
      return options_.first_int + static_cast<int64_t>(random.Below(range));
    };
    if (engine::IsFloat(input.type)) {
      dense->mutable_floats()->Resize(count, 0);
      for (float& value : *dense->mutable_floats()) value = DrawFloat(random);
    } else if (engine::SizeOf(input.type) == 8) {
      dense->mutable_int64s()->Resize(count, 0);
      for (int64_t& value : *dense->mutable_int64s()) value = draw();
    } else {
      dense->mutable_int32s()->Resize(count, 0);
      for (int32_t& value : *dense->mutable_int32s()) value = static_cast<int32_t>(draw());
    }
  }
}

void RandomRequests::Fill(const RequestChoice& choice,
                          inference::ModelInferRequest& request) const {
  Random user = StreamOf(choice, true), ad = StreamOf(choice, false);
  for (const SparseInput& input : inputs_.sparse) {
    const int64_t per_row = IdsPerRow(input), rows = input.of_user ? 1 : choice.ads;
    const std::vector<int64_t> ids = DrawIds(input.of_user ? user : ad, per_row * rows);
    AddRaw(input.name + ".ids", "INT64", {per_row * rows}, RawBytes(ids.data(), ids.size()),
           request);
    if (input.of_user || per_row == 1) continue;
    const std::vector<int32_t> counts(static_cast<size_t>(rows), static_cast<int32_t>(per_row));
    AddRaw(input.name + ".segments", "INT32", {rows}, RawBytes(counts.data(), counts.size()),
           request);
  }
  for (const DenseInput& input : inputs_.dense) {
    const int64_t rows = input.of_user ? input.user_rows : choice.ads;
    std::vector<int64_t> shape = input.dims;
    shape.insert(shape.begin(), rows);
    const int64_t count = rows * ElementsPerRow(input);
    const size_t size = engine::SizeOf(input.type);
    std::string bytes(static_cast<size_t>(count) * size, '\0');
    Random& random = input.of_user ? user : ad;
    const auto range = static_cast<uint64_t>(options_.last_int - options_.first_int + 1);
    for (int64_t i = 0; i < count; ++i) {
      char* const to = bytes.data() + i * size;
      if (engine::IsFloat(input.type)) {
        size == 4 ? Put(DrawFloat(random), to) : Put<double>(DrawFloat(random), to);
      } else if (input.type == engine::NumberType::kBool) {
        *to = static_cast<char>(random.Next() & 1);
      } else {
        // Little-endian: the low bytes come first.
        const int64_t value = options_.first_int + static_cast<int64_t>(random.Below(range));
        std::memcpy(to, &value, size);
      }
    }
    AddRaw(input.name, engine::KserveName(input.type), shape, std::move(bytes), request);
  }
}

}  // namespace ulfd::tools
