// PoolFeatures over many features against a plain loop, bit by bit; its loops against each other.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/embedding/pooling.h"
#include "engine/embedding/row_pooling.h"
#include "engine/embedding/table_builder.h"
#include "engine/embedding/table_file_writer.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

constexpr int64_t kTableIds = 300;  // Ids 0, 7, 14, ...; others are missing.
constexpr int64_t kStep = 7;

// fp32 rows in memory, others in a file.
std::unique_ptr<const EmbeddingTable> MakeTable(int64_t dim, const TableOptions& options = {},
                                                RowFormat format = RowFormat::kFp32) {
  std::mt19937 random(static_cast<uint32_t>(dim));
  const TempDir directory;
  TableFileWriter file(directory.File("t.ulft"), {.format = format});
  EXPECT_TRUE(file.Begin(dim, kTableIds).ok());
  TableBuilder builder(dim);
  for (int64_t i = 0; i < kTableIds; ++i) {
    float* row = *builder.NextRow();
    for (int64_t c = 0; c < dim; ++c) {
      // Sums of these depend on their order; some are -0.
      row[c] = random() % 16 == 0 ? -0.0f : (static_cast<float>(random()) - 2e9f) * 1e-7f;
    }
    std::copy_n(row, dim, *file.NextRow());
    builder.Commit(i * kStep);
    EXPECT_TRUE(file.Commit(i * kStep).ok());
  }
  EXPECT_TRUE(file.Finish().ok());
  auto table = format == RowFormat::kFp32
                   ? EmbeddingTable::Make("t", *builder.Finish(/*with_mean=*/true), options)
                   : EmbeddingTable::Load("t", directory.File("t.ulft"), options);
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

// A feature of a request, its outputs and what they should be.
struct Feature {
  const EmbeddingTable* table = nullptr;
  std::vector<int64_t> ids;
  std::vector<float> values;  // Empty: left out.
  std::vector<int32_t> segments;
  std::vector<PoolingSpec> specs;
  std::vector<std::vector<float>> got;
  std::vector<PoolingOutput> outputs;
  int64_t missing = 0;
};

// What an output must be, one float operation after another.
std::vector<float> Plain(const Feature& f, const PoolingSpec& spec) {
  std::vector<float> out(f.segments.size() * static_cast<size_t>(spec.width()), 0.0f);
  const bool assign = spec.pooling == Pooling::kAssign;
  std::vector<float> row(static_cast<size_t>(f.table->dim()));
  size_t begin = 0;
  for (size_t r = 0; r < f.segments.size(); ++r) {
    const auto n = static_cast<int64_t>(f.segments[r]);
    const int64_t kept = assign || spec.trunc_num > 0 ? std::min(n, spec.trunc_num) : n;
    const int64_t first = spec.keep_last ? n - kept : 0;
    float* row_out = out.data() + static_cast<int64_t>(r) * spec.width();
    bool started = false;
    for (int64_t k = 0; k < kept; ++k) {
      const size_t at = begin + static_cast<size_t>(first + k);
      const void* found = f.table->Find(f.ids[at]);
      if (found == nullptr) found = f.table->missing_row();
      if (found == nullptr) continue;
      DecodeRow(f.table->format(), static_cast<const char*>(found), f.table->dim(), row.data());
      const float value = f.values.empty() ? 1.0f : f.values[at];
      const int64_t slot = spec.keep_last ? spec.trunc_num - kept + k : k;
      for (int64_t c = 0; c < spec.dim; ++c) {
        const float product = value * row[c];
        float& to = row_out[assign ? slot * spec.dim + c : c];
        to = assign || !started ? product : to + product;
      }
      started = true;
    }
    for (int64_t c = 0; spec.pooling == Pooling::kAvg && started && kept > 1 && c < spec.dim; ++c) {
      row_out[c] /= static_cast<float>(kept);
    }
    begin += static_cast<size_t>(n);
  }
  return out;
}

int64_t Misses(const Feature& f) {
  return std::count_if(f.ids.begin(), f.ids.end(),
                       [&f](int64_t id) { return f.table->Find(id) == nullptr; });
}

// Runs all features in one pass, with memory of exactly the size that they need, and compares.
void RunAndCompare(std::vector<Feature>& features, const std::string& what) {
  std::vector<FeatureJob> jobs;
  size_t ids = 0;
  for (Feature& f : features) {
    f.got.clear();
    f.outputs.clear();
    for (const PoolingSpec& spec : f.specs) {
      f.got.emplace_back(f.segments.size() * static_cast<size_t>(spec.width()), -99.0f);
    }
    for (size_t o = 0; o < f.specs.size(); ++o) {
      f.outputs.push_back({f.specs[o], f.got[o].data(), f.specs[o].width()});
    }
    const FeatureInput input{f.ids, f.values.empty() ? nullptr : f.values.data(), f.segments};
    ASSERT_TRUE(CheckSegments(input).ok()) << what;
    f.missing = 0;
    jobs.push_back({f.table, input, f.outputs, &f.missing});
    ids += f.ids.size();
  }
  const std::unique_ptr<char[]> scratch(new char[ids * kPoolingScratchBytes]);
  size_t failed = 0;
  Pace pace;
  const absl::Status status = PoolFeatures(jobs, scratch.get(), pace, &failed);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < features.size(); ++i) {
    const Feature& f = features[i];
    EXPECT_EQ(f.missing, Misses(f)) << what << ", feature " << i;
    for (size_t o = 0; o < f.specs.size(); ++o) {
      const std::vector<float> want = Plain(f, f.specs[o]);
      ASSERT_EQ(f.got[o].size(), want.size());
      ASSERT_TRUE(want.empty() ||
                  std::memcmp(f.got[o].data(), want.data(), want.size() * sizeof(float)) == 0)
          << what << ", feature " << i << ", output " << o << ", dim " << f.specs[o].dim;
    }
  }
}

std::vector<PoolingSpec> AllSpecs(int64_t dim) {
  std::vector<PoolingSpec> specs;
  for (const Pooling pooling : {Pooling::kSum, Pooling::kAvg, Pooling::kAssign}) {
    for (const int64_t trunc : {0, 1, 3, 50}) {
      for (const bool last : {false, true}) specs.push_back({pooling, dim, trunc, last});
    }
  }
  return specs;
}

// `hits` of 100 ids are in the table.
void AddIds(Feature& f, int32_t count, uint32_t hits, std::mt19937& random) {
  f.segments.push_back(count);
  for (int32_t i = 0; i < count; ++i) {
    f.ids.push_back(static_cast<int64_t>(random() % kTableIds) * kStep +
                    (random() % 100 < hits ? 0 : 1 + static_cast<int64_t>(random() % 6)));
  }
}

void AddValues(Feature& f, std::mt19937& random) {
  while (f.values.size() < f.ids.size()) {
    f.values.push_back((static_cast<float>(random()) - 2e9f) * 1e-9f);
  }
}

class PoolingPass : public ::testing::TestWithParam<int64_t> {};

TEST_P(PoolingPass, EveryModeAgreesWithAPlainLoop) {
  const auto table = MakeTable(GetParam());
  std::mt19937 random(3);
  for (const bool values : {false, true}) {
    for (const uint32_t hits : {0u, 50u, 100u}) {
      std::vector<Feature> features(1);
      features[0].table = table.get();
      features[0].specs = AllSpecs(GetParam());
      for (const int32_t n : {0, 1, 2, 3, 4, 0, 0, 15, 16, 17, 60, 2000, 0}) {
        AddIds(features[0], n, hits, random);
      }
      if (values) AddValues(features[0], random);
      RunAndCompare(features, std::to_string(hits) + " % hits");
    }
  }
}

TEST_P(PoolingPass, MissingIdsTakeTheDefaultRow) {
  const auto table =
      MakeTable(GetParam(), {.missing_keys = MissingKeys::kDefaultRow, .default_id = 2 * kStep});
  std::mt19937 random(4);
  std::vector<Feature> features(1);
  features[0].table = table.get();
  features[0].specs = AllSpecs(GetParam());
  for (const int32_t n : {1, 5, 40}) AddIds(features[0], n, 30, random);
  AddValues(features[0], random);
  RunAndCompare(features, "default row");
}

// The portable loops and those of the processor give the same bits.
TEST_P(PoolingPass, LoopsAgree) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
#endif
  const int64_t dim = GetParam();
  std::mt19937 random(5);
  Feature f;
  for (const int32_t n : {0, 1, 2, 9}) AddIds(f, n, 80, random);
  AddValues(f, random);
  for (int i = 0; i < 8; ++i) {
    const auto format = static_cast<RowFormat>(i / 2);
    const auto table = MakeTable(dim, {}, format);
    std::vector<const void*> rows;
    for (const int64_t id : f.ids) rows.push_back(table->Find(id));
    const float* values = i % 2 == 1 ? f.values.data() : nullptr;
    const RowPooling a = PortableRowPooling()[i / 2], b = Avx2RowPooling()[i / 2];
    PoolingRun run{.rows = rows.data(), .values = values, .segments = f.segments.data()};
    run.row_count = f.segments.size();
    run.dim = run.columns = dim;
    run.most = 5;
    run.keep_last = true;
    run.stride = 5 * dim;
    std::vector<float> first(4 * 5 * dim, -99), second = first;
    for (const auto op : {&RowPooling::sum, &RowPooling::avg, &RowPooling::assign}) {
      run.out = first.data();
      (a.*op)(run);
      run.out = second.data();
      (b.*op)(run);
      ASSERT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dims, PoolingPass,
                         ::testing::Values(1, 2, 3, 5, 7, 8, 9, 16, 18, 19, 24, 33, 36, 64, 65, 72,
                                           100, 200));

// Sizes around the distances between the stages, before and behind each other, with empty features
// among them.
TEST(PoolingPassBorders, FeaturesOfEverySizeInARow) {
  const auto narrow = MakeTable(3), wide = MakeTable(18);
  std::mt19937 random(6);
  const std::vector<int32_t> sizes = {0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49};
  for (const int32_t first : sizes) {
    for (const int32_t second : sizes) {
      for (const int32_t row : {1, 7, 100}) {  // Ids per row.
        std::vector<Feature> features(4);
        const int32_t counts[] = {first, second, 0, second};
        for (int i = 0; i < 4; ++i) {
          Feature& f = features[i];
          f.table = i % 2 == 0 ? narrow.get() : wide.get();
          f.specs = {{.pooling = Pooling::kSum, .dim = f.table->dim()}};
          for (int32_t left = counts[i]; left > 0; left -= row) {
            AddIds(f, std::min(left, row), 90, random);
          }
          if (i == 1) AddValues(f, random);
        }
        RunAndCompare(features, std::to_string(first) + ", " + std::to_string(second));
      }
    }
  }
}

TEST(PoolingPassBorders, RandomFeatures) {
  std::vector<std::unique_ptr<const EmbeddingTable>> tables;
  for (const int64_t dim : {1, 8, 18, 19, 100}) {
    for (int format = 0; format < 4; ++format) {
      tables.push_back(MakeTable(dim, {}, static_cast<RowFormat>(format)));
    }
  }
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    std::vector<Feature> features(random() % 80);
    for (Feature& f : features) {
      f.table = tables[random() % tables.size()].get();
      const std::vector<PoolingSpec> specs = AllSpecs(f.table->dim());
      for (uint32_t o = random() % 4; o > 0; --o) f.specs.push_back(specs[random() % specs.size()]);
      const uint32_t most = 1 + random() % 20, hits = random() % 101;
      for (uint32_t r = random() % 6; r > 0; --r) {
        AddIds(f, static_cast<int32_t>(random() % most), hits, random);
      }
      if (random() % 2 == 0) AddValues(f, random);
    }
    RunAndCompare(features, "round " + std::to_string(round));
  }
}

}  // namespace
}  // namespace ulfd::engine
