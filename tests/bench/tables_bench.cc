// Embedding lookups of one request against a bare gather of the same rows, in turns in one run.
// SPDX-License-Identifier: Apache-2.0
//
// The gather has the addresses of the rows at hand: it fetches 16 rows ahead and sums.
// PoolFeatures has ids: it must find the rows, compare ids, count the missing ones and write the
// sums of bags.  Both go through the same requests of 2000 ids each, taking turns after every
// request, the gather half of the requests ahead, so that neither finds what the other one has
// brought into the cache, and whatever else the machine does disturbs both alike.  CPU time.
#include <time.h>

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
#include "engine/embedding/key_index.h"
#include "engine/embedding/page_buffer.h"
#include "engine/embedding/pooling.h"
#include "engine/embedding/table_builder.h"
#include "engine/embedding/table_file_writer.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/scratch_model.h"

namespace ulfd::bench {
namespace {

using engine::EmbeddingTable;
using engine::FeatureJob;
using engine::PoolingOutput;

struct Options {
  std::vector<int64_t> rows = {1000000};
  std::vector<int64_t> dims = {18};
  int64_t requests = 500, pairs = 9;
  bool layout = false, text = false, mapped = false;
};

constexpr int64_t kIdsPerRequest = 2000;

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Of `work`.
template <typename Work>
double Seconds(Work work) {
  const double begin = CpuSeconds();
  work();
  return CpuSeconds() - begin;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

[[noreturn]] void Fail(const absl::Status& status) {
  std::fprintf(stderr, "tables_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

// Id of row i; odd ids are in no table.
int64_t IdOf(int64_t i) { return i * 2; }

std::unique_ptr<const EmbeddingTable> MakeTable(int64_t rows, int64_t dim) {
  engine::TableBuilder builder(dim);
  if (absl::Status status = builder.Reserve(rows); !status.ok()) Fail(status);
  for (int64_t i = 0; i < rows; ++i) {
    absl::StatusOr<float*> row = builder.NextRow();
    if (!row.ok()) Fail(row.status());
    std::fill_n(*row, dim, static_cast<float>(i % 1000));
    builder.Commit(IdOf(i));
  }
  auto made = builder.Finish();
  if (!made.ok()) Fail(made.status());
  auto table = EmbeddingTable::Make("bench", *std::move(made), {});
  if (!table.ok()) Fail(table.status());
  return *std::move(table);
}

void PrefetchFloats(const float* row, int64_t dim) {
  for (int64_t c = 0; c < dim; c += 16) __builtin_prefetch(row + c);
  __builtin_prefetch(row + dim - 1);
}

template <int64_t kDim>
void GatherDim(const std::vector<const float*>& rows, float* sum) {
  constexpr size_t kAhead = 16;
  float total[kDim] = {};
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) PrefetchFloats(rows[i + kAhead], kDim);
    for (int64_t c = 0; c < kDim; ++c) total[c] += rows[i][c];
  }
  std::copy_n(total, kDim, sum);
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

// Some ids of a table and where their rows are (or those of other ids, for ids that the table
// lacks).
struct Ids {
  std::vector<int64_t> ids;
  std::vector<const float*> rows;
};

// `table`: whose rows the gather reads.
Ids MakeIds(const EmbeddingTable& table, int hits, std::mt19937_64& random) {
  Ids made;
  for (int64_t i = 0; i < kIdsPerRequest; ++i) {
    const auto row = static_cast<int64_t>(random() % static_cast<uint64_t>(table.rows()));
    const bool hit = static_cast<int>(random() % 100) < hits;
    made.ids.push_back(hit ? IdOf(row) : IdOf(row) + 1);
    made.rows.push_back(static_cast<const float*>(table.Find(IdOf(row))));
  }
  return made;
}

// What PoolFeatures needs for requests of kIdsPerRequest ids in features of 200.
class Pass {
 public:
  Pass(const EmbeddingTable& table, int32_t bag)
      : scratch_(kIdsPerRequest * engine::kPoolingScratchBytes), segments_(kFeatureIds / bag, bag) {
    const auto rows = static_cast<int64_t>(segments_.size());
    const int64_t features = kIdsPerRequest / kFeatureIds;
    out_.resize(static_cast<size_t>(rows * features * table.dim()));
    output_.resize(features);
    for (int64_t f = 0; f < features; ++f) {
      output_[f] = {{.pooling = engine::Pooling::kSum, .dim = table.dim()},
                    out_.data() + f * rows * table.dim(),
                    table.dim()};
      jobs_.push_back(FeatureJob{.table = &table,
                                 .input = {{}, nullptr, segments_},
                                 .outputs = {&output_[f], 1},
                                 .missing = &missing_});
    }
  }

  void Run(const std::vector<int64_t>& ids) {
    for (size_t f = 0; f < jobs_.size(); ++f) {
      jobs_[f].input.ids = absl::MakeConstSpan(ids).subspan(f * kFeatureIds, kFeatureIds);
    }
    size_t failed = 0;
    absl::Status status = PoolFeatures(jobs_, scratch_.data(), &failed);
    if (!status.ok()) Fail(status);
  }

 private:
  static constexpr int64_t kFeatureIds = 200;
  std::vector<char> scratch_;
  std::vector<int32_t> segments_;
  std::vector<float> out_;
  std::vector<PoolingOutput> output_;
  std::vector<FeatureJob> jobs_;
  int64_t missing_ = 0;
};

struct Sample {
  std::vector<double> gather, other, ratio;  // ns per id.

  void Add(double gather_seconds, double other_seconds, size_t ids) {
    gather.push_back(gather_seconds / static_cast<double>(ids) * 1e9);
    other.push_back(other_seconds / static_cast<double>(ids) * 1e9);
    ratio.push_back(other_seconds / gather_seconds);
  }
  void Print(const char* what) const {
    const auto [least, most] = std::minmax_element(ratio.begin(), ratio.end());
    std::printf("  %-34s %6.1f ns/id   gather %6.1f ns/id   ratio %.2f (%.2f to %.2f)\n", what,
                Median(other), Median(gather), Median(ratio), *least, *most);
  }
};

// Times `other(request)` against a gather of the requests' rows.
template <typename Other>
Sample Compare(const std::vector<Ids>& requests, int64_t dim, int64_t pairs, Other other) {
  Sample sample;
  std::vector<float> sum(static_cast<size_t>(dim));
  const size_t half = requests.size() / 2;
  for (int64_t pair = -1; pair < pairs; ++pair) {  // The first one warms up.
    double gather_seconds = 0, other_seconds = 0;
    for (size_t r = 0; r < requests.size(); ++r) {
      const Ids& ahead = requests[(r + half) % requests.size()];
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
  std::vector<Ids> requests;
  for (int64_t r = 0; r < options.requests; ++r) requests.push_back(MakeIds(floats, hits, random));
  Pass pass(table, bag);
  Compare(requests, table.dim(), options.pairs, [&](const Ids& request) {
    pass.Run(request.ids);
  }).Print(absl::StrCat(hits, " % hits, ", bag, " id(s) per bag").c_str());
}

// A layout that we did not take: a hash index of 64-byte buckets beside rows of their own.
class IndexBesideRows {
 public:
  explicit IndexBesideRows(const EmbeddingTable& table) : dim_(table.dim()) {
    if (absl::Status s = index_.Reserve(table.rows()); !s.ok()) Fail(s);
    if (absl::Status s = rows_.Resize(table.rows() * dim_ * sizeof(float)); !s.ok()) Fail(s);
    for (int64_t i = 0; i < table.rows(); ++i) {
      if (!index_.Insert(IdOf(i), static_cast<uint32_t>(i)).ok()) std::abort();
      std::copy_n(static_cast<const float*>(table.Find(IdOf(i))), dim_, Row(i));
    }
  }
  float* Row(int64_t i) const { return static_cast<float*>(rows_.data()) + i * dim_; }
  size_t bytes() const { return index_.bytes() + rows_.bytes(); }

  void Run(const std::vector<int64_t>& ids) {
    std::vector<float> sum(static_cast<size_t>(dim_));
    for (size_t begin = 0; begin < ids.size(); begin += kBlock) {
      found_.clear();
      const size_t end = std::min(ids.size(), begin + kBlock);
      for (size_t i = begin; i < end; ++i) {
        if (i + 16 < ids.size()) index_.Prefetch(ids[i + 16]);
        found_.push_back(Row(index_.Find(ids[i])));
        PrefetchFloats(found_.back(), dim_);
      }
      Gather(found_, dim_, sum.data());
    }
  }

 private:
  static constexpr size_t kBlock = 256;  // Its rows are still in the cache when they are summed.
  const int64_t dim_;
  engine::KeyIndex index_;
  engine::PageBuffer rows_;
  std::vector<const float*> found_;
};

void BenchIndexBesideRows(const EmbeddingTable& table, const Options& options) {
  IndexBesideRows other(table);
  std::mt19937_64 random(5);
  std::vector<Ids> requests;
  for (int64_t r = 0; r < options.requests; ++r) {
    requests.push_back(MakeIds(table, 100, random));
    for (size_t i = 0; i < requests.back().ids.size(); ++i) {
      requests.back().rows[i] = other.Row(requests.back().ids[i] / 2);
    }
  }
  Compare(requests, table.dim(), options.pairs, [&](const Ids& request) {
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
  std::printf("  LoadText (%%f, 6 decimals): %.2f M rows/s, at best %.2f\n", Median(rates),
              *std::max_element(rates.begin(), rates.end()));
}

void BenchTable(int64_t rows, int64_t dim, const Options& options) {
  std::unique_ptr<const EmbeddingTable> table;
  const double seconds = Seconds([&] { table = MakeTable(rows, dim); });
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
