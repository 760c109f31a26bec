// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table_builder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "base/hash_map.h"
#include "base/status_macros.h"

namespace ulfd::engine {
namespace {

constexpr size_t kLineBytes = 64;
// Longer slots may cost so much; with the empty ones a table stays within 1.3 x ids and rows.
constexpr double kMostPadding = 1.15;

// Cache lines that the first `used` bytes of the slots touch, over the slots of one period.
size_t LinesOfPeriod(size_t slot_bytes, size_t used) {
  size_t lines = 0;
  for (size_t i = 0; i < kLineBytes; ++i) {
    const size_t offset = i * slot_bytes % kLineBytes;
    lines += (offset + used - 1) / kLineBytes + 1;
  }
  return lines;
}

}  // namespace

size_t BestSlotBytes(size_t used) {
  size_t best = (used + sizeof(float) - 1) / sizeof(float) * sizeof(float);
  const auto most = static_cast<size_t>(static_cast<double>(used) * kMostPadding);
  const size_t tried = std::min(most, used + kLineBytes);
  for (size_t bytes = best; bytes <= tried; bytes += sizeof(float)) {
    if (LinesOfPeriod(bytes, used) < LinesOfPeriod(best, used)) best = bytes;
  }
  return best;
}

std::vector<float> MeanRow::Get() const {
  std::vector<float> mean;
  for (const double sum : sums_) {
    mean.push_back(rows_ == 0 ? 0 : static_cast<float>(sum / static_cast<double>(rows_)));
  }
  return mean;
}

TableBuilder::TableBuilder(int64_t dim) : table_(std::make_shared<TableRows>()) {
  table_->dim = dim;
  table_->used_bytes = TableRows::kIdBytes + RowBytes(table_->format, dim);
  table_->slot_bytes = BestSlotBytes(table_->used_bytes);
}

absl::Status TableBuilder::Reserve(int64_t rows) {
  const size_t wanted = static_cast<size_t>(rows) * table_->slot_bytes;
  return wanted <= table_->memory.bytes() ? absl::OkStatus() : table_->memory.Resize(wanted);
}

absl::StatusOr<float*> TableBuilder::NextRow() {
  const int64_t wanted = table_->rows + 1;
  if (static_cast<size_t>(wanted) * table_->slot_bytes > table_->memory.bytes()) {
    RETURN_IF_ERROR(Reserve(wanted + wanted / 8 + 16));
  }
  return reinterpret_cast<float*>(Slot(table_->rows) + TableRows::kIdBytes);
}

void TableBuilder::Commit(int64_t id) {
  std::memcpy(Slot(table_->rows), &id, sizeof id);
  ++table_->rows;
  hashes_.clear();
}

void TableBuilder::SortHashes() {
  if (!hashes_.empty()) return;
  hashes_.reserve(static_cast<size_t>(rows()));
  for (int64_t row = 0; row < rows(); ++row) hashes_.push_back(HashKey(IdAt(row)));
  std::sort(hashes_.begin(), hashes_.end());
}

bool TableBuilder::HasDuplicates() {
  if (IsConsecutive()) return false;
  SortHashes();  // Equal hashes are equal ids.
  return std::adjacent_find(hashes_.begin(), hashes_.end()) != hashes_.end();
}

std::optional<TableBuilder::Duplicate> TableBuilder::FindDuplicate() {
  if (!HasDuplicates()) return std::nullopt;
  HashSet<uint64_t> repeated;
  for (size_t i = 1; i < hashes_.size(); ++i) {
    if (hashes_[i] == hashes_[i - 1]) repeated.insert(hashes_[i]);
  }
  HashMap<int64_t, int64_t> first;
  for (int64_t row = 0; row < rows(); ++row) {
    const int64_t id = IdAt(row);
    if (!repeated.contains(HashKey(id))) continue;
    const auto [it, inserted] = first.emplace(id, row);
    if (!inserted) return Duplicate{id, it->second, row};
  }
  return std::nullopt;
}

int64_t TableBuilder::DropDuplicates() {
  if (!HasDuplicates()) return 0;
  HashMap<uint64_t, bool> seen;  // Of the ids that several rows have.
  for (size_t i = 1; i < hashes_.size(); ++i) {
    if (hashes_[i] == hashes_[i - 1]) seen.emplace(hashes_[i], false);
  }
  int64_t kept = 0;
  for (int64_t row = 0; row < rows(); ++row) {
    const auto it = seen.find(HashKey(IdAt(row)));
    if (it != seen.end() && std::exchange(it->second, true)) continue;
    if (kept != row) std::memcpy(Slot(kept), Slot(row), table_->used_bytes);
    ++kept;
  }
  hashes_.erase(std::unique(hashes_.begin(), hashes_.end()), hashes_.end());
  return std::exchange(table_->rows, kept) - kept;
}

bool TableBuilder::IsConsecutive() const {
  for (int64_t row = 1; row < rows(); ++row) {
    if (IdAt(row - 1) == std::numeric_limits<int64_t>::max() || IdAt(row) != IdAt(row - 1) + 1) {
      return false;
    }
  }
  return true;
}

absl::Status TableBuilder::MakeHash() {
  if (const std::optional<Duplicate> twice = FindDuplicate(); twice.has_value()) {
    return InvalidArgument("id ", twice->id, " has two rows, ", twice->first_row, " and ",
                           twice->row);
  }
  ASSIGN_OR_RETURN(table_->hash, PerfectHash::Build(hashes_));
  hashes_ = {};
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const TableRows>> TableBuilder::Finish(bool with_mean) {
  if (rows() == 0) return InvalidArgument("no rows, want at least one");
  if (IsConsecutive()) {
    table_->first_id = IdAt(0);
  } else {
    RETURN_IF_ERROR(MakeHash());
  }
  const std::vector<float> mean = with_mean ? Mean() : std::vector<float>();
  const size_t slots = table_->slot_count() + (with_mean ? 1 : 0);
  RETURN_IF_ERROR(table_->memory.Resize(slots * table_->slot_bytes));
  table_->slots = static_cast<const char*>(table_->memory.data());
  if (!table_->first_id.has_value()) Place();
  if (with_mean) {
    std::memcpy(Slot(static_cast<int64_t>(slots) - 1) + TableRows::kIdBytes, mean.data(),
                mean.size() * sizeof(float));
  }
  return std::move(table_);
}

std::vector<float> TableBuilder::Mean() const {
  MeanRow mean(table_->dim);
  for (int64_t row = 0; row < table_->rows; ++row) {
    mean.Add(reinterpret_cast<const float*>(Slot(row) + TableRows::kIdBytes));
  }
  return mean.Get();
}

// Moves the rows of a table to the slots of their ids, within the table's memory.  A row that is
// lifted out makes room for another, which lifts the one that stands there, and so on.  Every step
// of such a chain waits for memory, so kChains of them take turns.
class TableBuilder::RowMover {
 public:
  // placed[slot] becomes true for slots that have their row.
  RowMover(TableRows& table, std::vector<bool>& placed)
      : table_(table),
        placed_(placed),
        waits_(static_cast<size_t>(table.rows), true),
        carried_(kChains * table.used_bytes) {}

  void Run() {
    std::array<size_t, kChains> targets{};
    std::array<bool, kChains> runs{};
    size_t running = 0;
    for (size_t c = 0; c < kChains; ++c) {
      runs[c] = Begin(c, targets[c]);
      running += runs[c] ? 1 : 0;
    }
    while (running > 0) {
      for (size_t c = 0; c < kChains; ++c) {
        if (!runs[c] || Step(c, targets[c]) || Begin(c, targets[c])) continue;
        runs[c] = false;
        --running;
      }
    }
  }

 private:
  static constexpr size_t kChains = 16;

  char* Carried(size_t chain) { return carried_.data() + chain * table_.used_bytes; }
  char* Slot(size_t slot) const {
    return static_cast<char*>(table_.memory.data()) + slot * table_.slot_bytes;
  }

  // Lifts the next row that waits; false if none does.
  bool Begin(size_t chain, size_t& target) {
    while (next_ < waits_.size() && !waits_[next_]) ++next_;
    if (next_ == waits_.size()) return false;
    waits_[next_] = false;
    std::memcpy(Carried(chain), Slot(next_), table_.used_bytes);
    Aim(chain, target);
    return true;
  }

  // Puts down the row that the chain carries and takes up the one that waited there; false if none
  // did.
  bool Step(size_t chain, size_t& target) {
    placed_[target] = true;
    char* carried = Carried(chain);
    if (target >= waits_.size() || !waits_[target]) {
      std::memcpy(Slot(target), carried, table_.used_bytes);
      return false;
    }
    waits_[target] = false;
    std::swap_ranges(carried, carried + table_.used_bytes, Slot(target));
    Aim(chain, target);
    return true;
  }

  void Aim(size_t chain, size_t& target) {
    int64_t id;
    std::memcpy(&id, Carried(chain), sizeof id);
    target = table_.hash.Slot(HashKey(id));
    const char* slot = Slot(target);
    for (size_t i = 0; i < table_.used_bytes; i += kLineBytes) __builtin_prefetch(slot + i, 1);
    __builtin_prefetch(slot + table_.used_bytes - 1, 1);
  }

  TableRows& table_;
  std::vector<bool>& placed_;
  std::vector<bool> waits_;  // Rows that have not been lifted.
  std::vector<char> carried_;
  size_t next_ = 0;  // No row below waits.
};

void TableBuilder::Place() {
  std::vector<bool> placed(table_->hash.slots(), false);
  RowMover(*table_, placed).Run();
  FillEmptySlots(placed);
}

// Any id that has its row elsewhere makes a slot one that no lookup accepts.
void TableBuilder::FillEmptySlots(const std::vector<bool>& placed) {
  const auto taken = std::find(placed.begin(), placed.end(), true) - placed.begin();
  const int64_t id = IdAt(taken);
  for (size_t slot = 0; slot < placed.size(); ++slot) {
    if (!placed[slot]) std::memcpy(Slot(static_cast<int64_t>(slot)), &id, sizeof id);
  }
}

}  // namespace ulfd::engine
