// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/pooling.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/errors.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "engine/embedding/row_pooling.h"
#include "engine/embedding/table_overlay.h"

namespace ulfd::engine {
namespace {

// Rows are summed up at least so many ids at a time.
constexpr size_t kLeastIds = 16;
// Columns that are summed up between two looks whether somebody waits: a row may have a million
// ids.
constexpr int64_t kMostColumns = 64;
// What the look-up of an id takes, in multiplications, and of a block of them from disk.
constexpr int64_t kLookUpWork = 1000, kDiskWork = Pace::kMillisecond;

// A place in the ids of all jobs, one after the other, and what is there.
class Cursor {
 public:
  explicit Cursor(absl::Span<const FeatureJob> jobs)
      : next_(jobs.data()), end_(next_ + jobs.size()) {
    NextJob();
  }
  // Ids of the job from here on; 0: behind all jobs.
  size_t left() const { return left_; }
  const int64_t* ids() const { return ids_; }
  const EmbeddingTable& table() const { return *job().table; }
  const FeatureJob& job() const { return next_[-1]; }
  // Of the next id among all.
  size_t position() const { return position_; }
  void Move(size_t count) {
    ids_ += count;
    left_ -= count;
    position_ += count;
    if (left_ == 0) NextJob();
  }

 private:
  void NextJob() {
    while (left_ == 0 && next_ != end_) {
      left_ = next_->input.ids.size();
      ids_ = next_->input.ids.data();
      ++next_;
    }
  }

  const FeatureJob* next_;
  const FeatureJob* const end_;
  const int64_t* ids_ = nullptr;
  size_t left_ = 0;
  size_t position_ = 0;
};

// The pass.  Ids go in blocks through three stages, a block apart: the first asks for what leads
// from the id to its row (or finds it where ids follow each other), the second for the row, the
// third compares ids.  Prefetches stand in loops that do nothing else: one that misses the TLB
// keeps its place among the instructions in flight until the page is found, so that what stands
// between them costs misses in flight.
class LookupPass {
 public:
  // `rows`: one per id.  Borrows `pace`.
  LookupPass(absl::Span<const FeatureJob> jobs, const void** rows, Pace& pace)
      : first_job_(jobs.data()),
        rows_(rows),
        pace_(pace),
        hashed_(jobs),
        located_(jobs),
        checked_(jobs) {
    Hash();
    Locate();
    Hash();
  }

  // Makes sure that rows()[0 .. end - 1] are final.
  absl::Status Advance(size_t end) {
    while (checked_.position() < end) {
      if (located_.left() > 0 && located_.position() < checked_.position() + kBlock) {
        Locate();
        Hash();
      }
      const size_t count = LeftTo(checked_, std::min(end, located_.position()));
      RETURN_IF_ERROR(Check(count));
      const int64_t work = from_disk_ ? kDiskWork : kLookUpWork * static_cast<int64_t>(count);
      if (pace_.Stops(work)) return pace_.status();
    }
    return absl::OkStatus();
  }
  const void* const* rows() const { return rows_; }
  // The job for which Advance failed.
  size_t failed() const { return static_cast<size_t>(&checked_.job() - first_job_); }

 private:
  static constexpr size_t kBlock = 64;

  // Ids of the cursor's job that are before `end`.
  static size_t LeftTo(const Cursor& cursor, size_t end) {
    return std::min(cursor.left(), end - cursor.position());
  }

  // The next block.
  void Hash() {
    size_t n = 0;
    while (n < kBlock && hashed_.left() > 0) {
      const size_t count = std::min(hashed_.left(), kBlock - n);
      const RowSet* const fetched = hashed_.job().fetched;
      const EmbeddingTable::Probe probe = hashed_.table().probe();
      const int64_t* const ids = hashed_.ids();
      if (const TableOverlay* overlay = hashed_.table().overlay(); overlay != nullptr) {
        overlay->Prefetch({ids, count});
      }
      if (probe.consecutive()) {
        const void** const rows = rows_ + hashed_.position();
        for (size_t i = 0; i < count; ++i) rows[i] = probe.CandidateAt(ids[i]);
      } else {
        for (size_t i = 0; i < count; ++i) {
          hashes_[n + i] = HashKey(ids[i]);
          pilots_[n + i] =
              fetched == nullptr ? probe.Pilot(hashes_[n + i]) : fetched->FirstByte(hashes_[n + i]);
        }
        for (size_t i = 0; i < count; ++i) __builtin_prefetch(pilots_[n + i]);
      }
      n += count;
      hashed_.Move(count);
    }
  }

  // The block that was hashed.
  void Locate() {
    const size_t all = hashed_.position() - located_.position();
    for (size_t n = 0; n < all;) {
      const size_t count = std::min(located_.left(), all - n);
      const void** const rows = rows_ + located_.position();
      if (const RowSet* const fetched = located_.job().fetched; fetched != nullptr) {
        const int64_t* const ids = located_.ids();
        for (size_t i = 0; i < count; ++i) rows[i] = fetched->Find(ids[i], hashes_[n + i]);
      } else {
        const EmbeddingTable::Probe probe = located_.table().probe();
        for (size_t i = 0; i < count && !probe.consecutive(); ++i) {
          rows[i] = probe.Candidate(hashes_[n + i], pilots_[n + i]);
        }
        if (const TableOverlay* overlay = located_.table().overlay(); overlay != nullptr) {
          overlay->Replace(located_.ids(), count, rows);
        }
        probe.PrefetchRows(rows, count);
        if (from_disk_) StartReadingRows(rows, count);
      }
      n += count;
      located_.Move(count);
    }
  }

  // All that are not in memory are read at a time, not one after the other as they are asked for.
  void StartReadingRows(const void* const* rows, size_t count) const {
    const TableRows& base = *located_.table().base();
    if (base.file == nullptr) return;
    for (size_t i = 0; i < count; ++i) {
      StartReading(static_cast<const char*>(rows[i]) - TableRows::kIdBytes, base.used_bytes);
    }
  }

  absl::Status Check(size_t count) {
    const void** const rows = rows_ + checked_.position();
    const int64_t* const ids = checked_.ids();
    const void* const stand_in = checked_.table().missing_row();
    const EmbeddingTable::Probe probe = checked_.table().probe();
    int64_t misses = 0;
    if (probe.consecutive() && checked_.table().overlay() == nullptr) {  // Ids need no look.
      for (size_t i = 0; i < count; ++i) misses += Take(probe.Has(ids[i]), stand_in, rows[i]);
    } else if (checked_.job().fetched == nullptr) {
      for (size_t i = 0; i < count; ++i) {
        misses += Take(EmbeddingTable::Holds(rows[i], ids[i]), stand_in, rows[i]);
      }
    } else {
      for (size_t i = 0; i < count; ++i) misses += CheckFetched(stand_in, rows[i]);
    }
    return Checked(count, misses);
  }

  // Keeps the row that holds its id, or takes the stand-in; returns how many are missing.
  static int64_t Take(bool held, const void* stand_in, const void*& row) {
    // Without a branch, which would be predicted wrong where many ids are missing.
    const auto holds = static_cast<uintptr_t>(held);
    const uintptr_t found = reinterpret_cast<uintptr_t>(row) & -holds;
    const uintptr_t missing = reinterpret_cast<uintptr_t>(stand_in) & (holds - 1);
    row = reinterpret_cast<const void*>(found | missing);  // NOLINT(performance-no-int-to-ptr)
    return static_cast<int64_t>(1 - holds);
  }

  static int64_t CheckFetched(const void* stand_in, const void*& row) {
    const bool missing = row == nullptr;
    if (missing || row == RowSet::LateRow()) row = stand_in;
    return missing ? 1 : 0;
  }

  // Ends Check of `count` ids of which the table lacks `misses`.
  absl::Status Checked(size_t count, int64_t misses) {
    const FeatureJob& job = checked_.job();
    *job.missing += misses;
    if (misses > 0 && job.table->missing_keys() == MissingKeys::kError) {
      size_t i = 0;  // Under kError a row is nullptr where the table lacks the id.
      while (rows_[checked_.position() + i] != nullptr) ++i;
      return InvalidArgument("id ", checked_.ids()[i], " is not in table \"", job.table->name(),
                             "\"");
    }
    checked_.Move(count);
    return absl::OkStatus();
  }

  const FeatureJob* const first_job_;
  const void** const rows_;
  Pace& pace_;
  const bool from_disk_ = MappedFilesExceedMemory();
  Cursor hashed_, located_, checked_;
  std::array<uint64_t, kBlock> hashes_;  // Of the block between Hash and Locate.
  std::array<const uint8_t*, kBlock> pilots_;
};

// Of `ids` ids.
void PoolRows(const RowPooling& loops, const PoolingOutput& output, PoolingRun& run, size_t row,
              size_t ids, Pace& pace) {
  const PoolingSpec& spec = output.spec;
  const bool assign = spec.pooling == Pooling::kAssign;
  if (spec.width() == 0) return;
  run.dim = spec.dim;
  run.most = assign || spec.trunc_num > 0 ? spec.trunc_num : std::numeric_limits<int64_t>::max();
  run.keep_last = spec.keep_last;
  run.out = output.out + static_cast<int64_t>(row) * output.stride;
  run.stride = output.stride;
  run.columns = std::min(run.dim, kMostColumns);
  auto* const loop = assign ? loops.assign : spec.pooling == Pooling::kAvg ? loops.avg : loops.sum;
  for (int64_t column = 0; column < run.dim; column += kMostColumns) {
    run.column = std::min(column, run.dim - run.columns);
    loop(run);
    if (pace.Stops(static_cast<int64_t>(ids) * run.columns)) return;
  }
}

// The feature whose first id is at position `first`.
absl::Status PoolFeature(const FeatureJob& job, const RowPooling& loops, size_t first,
                         LookupPass& pass, Pace& pace) {
  const absl::Span<const int32_t> segments = job.input.segments;
  size_t begin = 0;
  for (size_t row = 0; row < segments.size();) {
    size_t end = begin, next = row;
    while (next < segments.size() && end < begin + kLeastIds) {
      end += static_cast<size_t>(segments[next++]);
    }
    RETURN_IF_ERROR(pass.Advance(first + end));
    PoolingRun run;
    run.rows = pass.rows() + first + begin;
    run.values = job.input.values == nullptr ? nullptr : job.input.values + begin;
    run.segments = segments.data() + row;
    run.row_count = next - row;
    for (const PoolingOutput& output : job.outputs) {
      PoolRows(loops, output, run, row, end - begin, pace);
    }
    row = next;
    begin = end;
  }
  return pace.status();
}

}  // namespace

absl::Status CheckSegments(const FeatureInput& input) {
  int64_t sum = 0;
  for (size_t row = 0; row < input.segments.size(); ++row) {
    if (input.segments[row] < 0) {
      return InvalidArgument("segments[", row, "] is ", input.segments[row], ", want at least 0");
    }
    sum += input.segments[row];
  }
  if (sum == static_cast<int64_t>(input.ids.size())) return absl::OkStatus();
  return InvalidArgument("segments sum to ", sum, ", want ", input.ids.size(),
                         ", the number of ids");
}

absl::Status PoolFeatures(absl::Span<const FeatureJob> jobs, void* scratch, Pace& pace,
                          size_t* failed) {
  const RowPoolings& loops = BestRowPooling();
  LookupPass pass(jobs, static_cast<const void**>(scratch), pace);
  size_t first = 0;
  absl::Status status;
  for (const FeatureJob& job : jobs) {
    status = PoolFeature(job, loops[static_cast<size_t>(job.table->format())], first, pass, pace);
    if (!status.ok()) {
      *failed = pass.failed();
      break;
    }
    first += job.input.ids.size();
  }
  // Before what is said of rows that a damaged file lacks.
  for (const FeatureJob& job : jobs) {
    absl::Status damage = job.table->CheckRead(job.input.ids);
    if (damage.ok()) continue;
    *failed = static_cast<size_t>(&job - jobs.data());
    return damage;
  }
  return status;
}

}  // namespace ulfd::engine
