// The loops of RowPooling, compiled once per instruction set: each row_pooling_*.cc includes this
// file, with compiler options of its own, and nothing else that has code.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_ROW_POOLING_LOOPS_H_
#define ULFD_ENGINE_EMBEDDING_ROW_POOLING_LOOPS_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "engine/embedding/row_pooling.h"
#include "engine/embedding/row_values.h"

// Built once per instruction set; products of lanes are small.
// NOLINTBEGIN(misc-definitions-in-headers,bugprone-implicit-widening-of-multiplication-result)
namespace ulfd::engine {
namespace {  // Every instruction set needs copies of its own.

constexpr int64_t kMostVectors = 8;  // Accumulators that stay in registers.
typedef float Lanes __attribute__((vector_size(sizeof(Vector))));  // Vector, but in registers.

// Columns of rows that Values reads, as kParts vectors or numbers.  Vectors cover dim columns,
// kLanes <= dim <= kParts * kLanes: the last one ends with the last column, and what two vectors
// have in common is computed twice.  Numbers are for fewer columns than a vector has, dim = kParts.
template <typename Values, typename Part, int kParts>
struct Columns {
  using Row = Values;
  explicit Columns(int64_t column, int64_t dim) : first(column), last(column + dim - kLanes) {}

  int64_t Column(int p) const { return p + 1 < kParts ? first + p * kLanes : last; }
  Part Get(const Values& values, int p) const {
    if constexpr (std::is_same_v<Part, float>) {
      return values.At(p);
    } else {
      return values.Load(Column(p));
    }
  }

  void Zero() {
    for (int p = 0; p < kParts; ++p) sum[p] = Part{};
  }
  void Set(const void* row) {
    const Values values(row);
    for (int p = 0; p < kParts; ++p) sum[p] = Get(values, p);
  }
  void Set(const void* row, float value) {
    const Values values(row);
    for (int p = 0; p < kParts; ++p) sum[p] = value * Get(values, p);
  }
  void Add(const void* row) {
    const Values values(row);
    for (int p = 0; p < kParts; ++p) sum[p] += Get(values, p);
  }
  void Add(const void* row, float value) {
    const Values values(row);
    for (int p = 0; p < kParts; ++p) sum[p] += value * Get(values, p);
  }
  void Divide(float by) {
    for (int p = 0; p < kParts; ++p) sum[p] /= by;
  }
  // `out`: column 0.
  void Store(float* out) const {
    for (int p = 0; p < kParts; ++p) {
      if constexpr (std::is_same_v<Part, float>) {
        out[p] = sum[p];
      } else {
        *reinterpret_cast<Vector*>(out + Column(p)) = sum[p];
      }
    }
  }

  const int64_t first, last;  // Of vectors.
  Part sum[kParts];
};

// A row of -0, which changes no bit of what it is added to.  It stands in for rows that are
// missing: a branch would be predicted wrong for half of them.
constexpr int64_t kMostNothing = kMostVectors * kLanes;  // Columns.
template <typename Values>
struct Nothing {
  constexpr Nothing() {
    for (uint32_t& word : words) word = Values::kNothing;
  }
  uint32_t words[kMostNothing] = {};
};
template <typename Values>
constexpr Nothing<Values> kNothing;
template <typename Values>
inline const void* OrNothing(const void* row) {
  const auto nothing = reinterpret_cast<uintptr_t>(kNothing<Values>.words);
  const auto missing = static_cast<uintptr_t>(row == nullptr);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): without a branch.
  return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(row) | (nothing & -missing));
}

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

// Sum of the ids begin .. end - 1.  The first row is not added to a zero, which would turn -0 into
// 0.
template <typename Columns>
inline void SumRow(const PoolingRun& run, int64_t begin, int64_t end, Columns& columns) {
  int64_t i = begin;
  while (i < end && run.rows[i] == nullptr) ++i;
  if (i == end) return columns.Zero();
  if (run.values == nullptr && run.dim <= kMostNothing) {
    columns.Set(run.rows[i]);
    for (++i; i < end; ++i) {
      columns.Add(OrNothing<typename Columns::Row>(run.rows[i]));
    }
    return;
  }
  if (run.values == nullptr) {
    columns.Set(run.rows[i]);
    for (++i; i < end; ++i) {
      if (run.rows[i] != nullptr) columns.Add(run.rows[i]);
    }
    return;
  }
  columns.Set(run.rows[i], run.values[i]);
  for (++i; i < end; ++i) {
    if (run.rows[i] != nullptr) columns.Add(run.rows[i], run.values[i]);
  }
}

template <typename Columns, bool kAvg>
void SumRows(const PoolingRun& run, int64_t column, int64_t dim) {
  Columns columns(column, dim);
  int64_t begin = 0;
  float* out = run.out;
  for (size_t r = 0; r < run.row_count; ++r, out += run.stride) {
    const int64_t all = run.segments[r];
    const int64_t count = Least(all, run.most);
    const int64_t from = run.keep_last ? begin + all - count : begin;
    SumRow(run, from, from + count, columns);
    if (kAvg && count > 1) columns.Divide(static_cast<float>(count));
    columns.Store(out);
    begin += all;
  }
}

template <typename Columns>
inline void AssignSlot(const PoolingRun& run, int64_t id, float* out, Columns& columns) {
  const void* row = run.rows[id];
  if (row == nullptr) {
    columns.Zero();
  } else if (run.values == nullptr) {
    columns.Set(row);
  } else {
    columns.Set(row, run.values[id]);
  }
  columns.Store(out);
}

template <typename Columns>
void AssignRows(const PoolingRun& run, int64_t column, int64_t dim) {
  Columns columns(column, dim);
  int64_t begin = 0;
  for (size_t r = 0; r < run.row_count; ++r) {
    const int64_t all = run.segments[r];
    const int64_t count = Least(all, run.most);
    const int64_t from = run.keep_last ? begin + all - count : begin;
    const int64_t first = run.keep_last ? run.most - count : 0;
    float* out = run.out + static_cast<int64_t>(r) * run.stride;
    for (int64_t slot = 0; slot < run.most; ++slot, out += run.dim) {
      const int64_t k = slot - first;
      if (k >= 0 && k < count) {
        AssignSlot(run, from + k, out, columns);
      } else {
        columns.Zero();
        columns.Store(out);
      }
    }
    begin += all;
  }
}

enum class Pool { kSum, kAvg, kAssign };

template <Pool kPool, typename Columns>
void Run(const PoolingRun& run, int64_t column, int64_t dim) {
  if constexpr (kPool == Pool::kAssign) {
    AssignRows<Columns>(run, column, dim);
  } else {
    SumRows<Columns, kPool == Pool::kAvg>(run, column, dim);
  }
}

// Run for 1, 2, ... parts.
template <Pool kPool, typename Values, typename Part, typename Parts>
struct ByParts;
template <Pool kPool, typename Values, typename Part, int... kParts>
struct ByParts<kPool, Values, Part, std::integer_sequence<int, kParts...>> {
  static constexpr void (*kRun[])(const PoolingRun& run, int64_t column, int64_t dim) = {
      &Run<kPool, Columns<Values, Part, kParts + 1>>...};
};

// REQUIRES: a column or more, all of them if they are fewer than kLanes.
template <Pool kPool, typename Values>
void RunColumns(const PoolingRun& run) {
  using Numbers = ByParts<kPool, Values, float, std::make_integer_sequence<int, kLanes - 1>>;
  using Vectors = ByParts<kPool, Values, Lanes, std::make_integer_sequence<int, kMostVectors>>;
  const int64_t columns = run.columns;
  if (columns < kLanes) return Numbers::kRun[columns - 1](run, 0, columns);
  const int64_t vectors = (columns + kLanes - 1) / kLanes;
  if (vectors <= kMostVectors) return Vectors::kRun[vectors - 1](run, run.column, columns);
  // Too wide for the registers: piece by piece, the last one ending with the last column.
  constexpr int64_t kPiece = kMostVectors * kLanes;
  for (int64_t column = 0; column < columns; column += kPiece) {
    Vectors::kRun[kMostVectors - 1](run, run.column + Least(column, columns - kPiece), kPiece);
  }
}

template <typename Values>
constexpr RowPooling kPooling = {&RunColumns<Pool::kSum, Values>, &RunColumns<Pool::kAvg, Values>,
                                 &RunColumns<Pool::kAssign, Values>};
// By RowFormat.
constexpr RowPoolings kRowPoolings = {kPooling<Fp32Values>, kPooling<Fp16Values>,
                                      kPooling<Bf16Values>, kPooling<Int8Values>};

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers,bugprone-implicit-widening-of-multiplication-result)

#endif  // ULFD_ENGINE_EMBEDDING_ROW_POOLING_LOOPS_H_
