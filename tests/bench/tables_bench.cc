// Embedding lookups of one request against a bare gather of the same rows, in turns in one run.
// SPDX-License-Identifier: Apache-2.0
//
// The gather has the addresses of the rows at hand: it fetches 16 rows ahead and sums.
// PoolFeatures has ids: it must find the rows, compare ids, count the missing ones and write the
// sums of bags.  Both go through the same requests of 2000 ids each, taking turns after every
// request, the gather half of the requests ahead, so that neither finds what the other one has
// brought into the cache, and whatever else the machine does disturbs both alike.  CPU time.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/hash_map.h"
#include "engine/embedding/key_hash.h"
#include "engine/embedding/page_buffer.h"
#include "engine/embedding/table_file_writer.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/lookups.h"
#include "tests/bench/scratch_model.h"
#include "tests/bench/turns.h"

namespace ulfd::bench {
namespace {

using engine::EmbeddingTable;

struct Options {
  std::vector<int64_t> rows = {1000000};
  std::vector<int64_t> dims = {18};
  int64_t requests = 500, pairs = 9;
  bool consecutive = false, layout = false, text = false, mapped = false;
};

// CPU time of `work`.
template <typename Work>
double Seconds(Work work) {
  const double begin = Now(/*wall=*/false);
  work();
  return Now(/*wall=*/false) - begin;
}

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "tables_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

// The sum of the rows, by code that knows their length at compile time.
void Gather(const std::vector<const float*>& rows, int64_t dim, float* sum) {
  switch (dim) {
    case 8:
      return GatherDim<8>(rows, sum);
    case 16:
      return GatherDim<16>(rows, sum);
    case 18:
      return GatherDim<18>(rows, sum);
    case 32:
      return GatherDim<32>(rows, sum);
    case 64:
      return GatherDim<64>(rows, sum);
    default:
      Fail(absl::InvalidArgumentError("--dims: want 8, 16, 18, 32 or 64"));
  }
}

struct Sample {
  std::vector<double> gather, other, ratio;  // ns per id.

  void Add(double gather_seconds, double other_seconds, size_t ids) {
    gather.push_back(gather_seconds / static_cast<double>(ids) * 1e9);
    other.push_back(other_seconds / static_cast<double>(ids) * 1e9);
    ratio.push_back(other_seconds / gather_seconds);
  }
  void Print(const char* what) const {
    const Spread spread = SpreadOf(ratio);
    std::printf("  %-34s %6.1f ns/id   gather %6.1f ns/id   ratio %.2f (%.2f to %.2f)\n", what,
                SpreadOf(other).median, SpreadOf(gather).median, spread.median, spread.low,
                spread.high);
  }
};

// Times `other(request)` against a gather of the requests' rows.
template <typename Other>
Sample Compare(const std::vector<LookupRequest>& requests, int64_t dim, int64_t pairs,
               Other other) {
  Sample sample;
  std::vector<float> sum(static_cast<size_t>(dim));
  const size_t half = requests.size() / 2;
  for (int64_t pair = -1; pair < pairs; ++pair) {  // The first one warms up.
    double gather_seconds = 0, other_seconds = 0;
    for (size_t r = 0; r < requests.size(); ++r) {
      const LookupRequest& ahead = requests[(r + half) % requests.size()];
      gather_seconds += Seconds([&] { Gather(ahead.rows, dim, sum.data()); });
      other_seconds += Seconds([&] { other(requests[r]); });
    }
    if (pair >= 0) sample.Add(gather_seconds, other_seconds, requests.size() * kIdsPerRequest);
  }
  return sample;
}

// `hits` of 100 ids are in the table.  The gather reads rows for the others, too, and always those
// of `floats`, which holds the same ids.
void BenchPass(const EmbeddingTable& table, const EmbeddingTable& floats, const Options& options,
               int hits, int32_t bag) {
  std::mt19937_64 random(static_cast<uint64_t>(hits * 1000 + bag));
  std::vector<LookupRequest> requests;
  for (int64_t r = 0; r < options.requests; ++r)
    requests.push_back(MakeLookups(floats, hits, random));
  LookupPass pass(table, bag);
  Compare(requests, table.dim(), options.pairs, [&](const LookupRequest& request) {
    if (absl::Status status = pass.Run(request); !status.ok()) Fail(status);
  }).Print(absl::StrCat(hits, " % hits, ", bag, " id(s) per bag").c_str());
}

// A layout that we did not take: a hash table beside rows of their own.
class IndexBesideRows {
 public:
  explicit IndexBesideRows(const EmbeddingTable& table) : dim_(table.dim()) {
    index_.reserve(static_cast<size_t>(table.rows()));
    if (absl::Status s = rows_.Resize(table.rows() * dim_ * sizeof(float)); !s.ok()) Fail(s);
    for (int64_t i = 0; i < table.rows(); ++i) {
      index_.emplace(IdOf(i), static_cast<uint32_t>(i));
      std::copy_n(static_cast<const float*>(table.Find(IdOf(i))), dim_, Row(i));
    }
  }
  float* Row(int64_t i) const { return static_cast<float*>(rows_.data()) + i * dim_; }
  size_t bytes() const { return index_.capacity() * (sizeof(*index_.begin()) + 1) + rows_.bytes(); }

  void Run(const std::vector<int64_t>& ids) {
    std::vector<float> sum(static_cast<size_t>(dim_));
    for (size_t begin = 0; begin < ids.size(); begin += kBlock) {
      found_.clear();
      const size_t end = std::min(ids.size(), begin + kBlock);
      for (size_t i = begin; i < end; ++i) {
        if (i + 16 < ids.size()) index_.prefetch(ids[i + 16]);
        found_.push_back(Row(index_.find(ids[i])->second));
        PrefetchFloats(found_.back(), dim_);
      }
      Gather(found_, dim_, sum.data());
    }
  }

 private:
  static constexpr size_t kBlock = 256;  // Its rows are still in the cache when they are summed.
  const int64_t dim_;
  HashMap<int64_t, uint32_t, engine::KeyHash> index_;
  engine::PageBuffer rows_;
  std::vector<const float*> found_;
};

void BenchIndexBesideRows(const EmbeddingTable& table, const Options& options) {
  IndexBesideRows other(table);
  std::mt19937_64 random(5);
  std::vector<LookupRequest> requests;
  for (int64_t r = 0; r < options.requests; ++r) {
    requests.push_back(MakeLookups(table, 100, random));
    for (size_t i = 0; i < requests.back().ids.size(); ++i) {
      requests.back().rows[i] = other.Row(requests.back().ids[i] / 2);
    }
  }
  Compare(requests, table.dim(), options.pairs, [&](const LookupRequest& request) {
    other.Run(request.ids);
  }).Print("index beside the rows, 100 % hits");
  std::printf("  %-34s %.3f GB\n", "  memory of that", static_cast<double>(other.bytes()) / 1e9);
}

// The rows of `floats` in a file, which is in the page cache.
void BenchMapped(const EmbeddingTable& floats, engine::RowFormat format, const Options& options) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/table";
  engine::TableFileWriter writer(path, {.format = format});
  absl::Status status = writer.Begin(floats.dim(), floats.rows());
  for (int64_t i = 0; status.ok() && i < floats.rows(); ++i) {
    std::copy_n(static_cast<const float*>(floats.Find(IdOf(i))), floats.dim(), *writer.NextRow());
    status = writer.Commit(IdOf(i));
  }
  if (!status.ok()) Fail(status);
  const auto report = writer.Finish();
  if (!report.ok()) Fail(report.status());
  absl::StatusOr<std::unique_ptr<const EmbeddingTable>> table(nullptr);
  const double seconds = Seconds([&] { table = EmbeddingTable::Load("mapped", path, {}); });
  if (!table.ok()) Fail(table.status());
  std::printf(" mapped, %s: %.3f GB, opened in %.1f ms\n",
              std::string(engine::Name(format)).c_str(), static_cast<double>(report->bytes) / 1e9,
              seconds * 1e3);
  for (const int hits : {100, 50, 0}) BenchPass(**table, floats, options, hits, 10);
}

void BenchText(int64_t rows, int64_t dim) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/table";
  {
    std::ofstream file(path);
    std::mt19937 random(1);
    std::string line;
    for (int64_t i = 0; i < rows; ++i) {
      line = absl::StrCat(IdOf(i));
      for (int64_t c = 0; c < dim; ++c) {
        char text[32];
        std::snprintf(text, sizeof text, ",%f",
                      (static_cast<double>(random()) / 4294967296.0 - 0.5) / 4);
        line += text;
      }
      file << line << '\n';
    }
  }
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    const double seconds = Seconds([&] {
      auto table = EmbeddingTable::LoadText("bench", path, {});
      if (!table.ok()) Fail(table.status());
    });
    rates.push_back(static_cast<double>(rows) / seconds / 1e6);
  }
  const Spread rate = SpreadOf(rates);
  std::printf("  LoadText (%%f, 6 decimals): %.2f M rows/s, at best %.2f\n", rate.median,
              rate.high);
}

void BenchConsecutive(int64_t rows, int64_t dim, const Options& options) {
  const auto table = MakeTable(rows, dim, /*consecutive=*/true);
  if (!table.ok()) Fail(table.status());
  std::printf(" consecutive ids: %.3f GB\n", static_cast<double>((*table)->bytes()) / 1e9);
  for (const int32_t bag : {1, 10, 100}) BenchPass(**table, **table, options, 100, bag);
  for (const int hits : {50, 0}) BenchPass(**table, **table, options, hits, 10);
}

void BenchTable(int64_t rows, int64_t dim, const Options& options) {
  absl::StatusOr<std::unique_ptr<const EmbeddingTable>> made(nullptr);
  const double seconds = Seconds([&] { made = MakeTable(rows, dim); });
  if (!made.ok()) Fail(made.status());
  std::unique_ptr<const EmbeddingTable> table = *std::move(made);
  const double plain = static_cast<double>(rows) * static_cast<double>(8 + 4 * dim);
  std::printf("%lld rows of %lld floats: %.3f GB, %.2f x ids and rows; built in %.2f s\n",
              static_cast<long long>(rows), static_cast<long long>(dim),
              static_cast<double>(table->bytes()) / 1e9,
              static_cast<double>(table->bytes()) / plain, seconds);
  for (const int32_t bag : {1, 10, 100}) BenchPass(*table, *table, options, 100, bag);
  for (const int hits : {90, 50, 0}) BenchPass(*table, *table, options, hits, 10);
  if (options.layout) BenchIndexBesideRows(*table, options);
  for (size_t f = 0; options.mapped && f < engine::kRowFormats; ++f) {
    BenchMapped(*table, static_cast<engine::RowFormat>(f), options);
  }
  table.reset();
  if (options.consecutive) BenchConsecutive(rows, dim, options);
  if (options.text) BenchText(rows, dim);
}

std::function<absl::Status(const std::string&)> ReadList(std::vector<int64_t>& list) {
  return [&list](const std::string& text) {
    list.clear();
    for (const absl::string_view item : absl::StrSplit(text, ',')) {
      list.push_back(0);
      if (!absl::SimpleAtoi(item, &list.back()) || list.back() < 1) {
        return absl::InvalidArgumentError(text + ", want positive numbers, separated by commas");
      }
    }
    return absl::OkStatus();
  };
}

int Main(int argc, char** argv) {
  Options options;
  FlagSet flags("tables_bench [flags]", "Embedding lookups of one request against a bare gather.");
  flags.AddRead("rows", "Rows of each table: N,...", ReadList(options.rows));
  flags.AddRead("dims", "Floats of a row: 8, 16, 18, 32, 64, ...", ReadList(options.dims));
  flags.Add("requests", "Of each measurement.", &options.requests, 1);
  flags.Add("pairs", "Turns.", &options.pairs, 1);
  flags.Add("consecutive", "Also a table of consecutive ids.", &options.consecutive);
  flags.Add("layout", "Also a hash index beside the rows.", &options.layout);
  flags.Add("text", "Also LoadText.", &options.text);
  flags.Add("mapped", "Also table files, in each format of rows.", &options.mapped);
  return RunMain(argc, argv, flags, [&] {
    for (const int64_t rows : options.rows) {
      for (const int64_t dim : options.dims) BenchTable(rows, dim, options);
    }
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace ulfd::bench

int main(int argc, char** argv) { return ulfd::bench::Main(argc, argv); }
