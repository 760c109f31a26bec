// SPDX-License-Identifier: Apache-2.0
#include "engine/stores/rocksdb_store.h"

#include <fcntl.h>
#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/file_descriptor.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/embedding/key_hash.h"
#include "engine/embedding/row_format.h"
#include "engine/stores/rocksdb_manifest.h"
#include "engine/stores/stored_table.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;
namespace rdb = rocksdb;

constexpr char kTableKey[] = "m";
constexpr size_t kKeyBytes = 1 + sizeof(uint64_t);
// Indexes, filters and blocks of rows; beside it the kernel's pages.
constexpr size_t kBlockCacheBytes = size_t{32} << 20;
constexpr uint64_t kFileBytes = uint64_t{256} << 20;

// RocksDB would write its log into the directory.
class NoLog final : public rdb::Logger {
 public:
  using rdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

absl::Status FromRocksdb(const rdb::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", Printable(status.ToString(), 300));
  if (status.IsCorruption()) return DataLoss(text);
  if (status.IsNotFound()) return NotFound(text);
  if (status.IsIOError()) return Unavailable(text);
  return InvalidArgument(text);
}

rdb::Options DatabaseOptions() {
  rdb::BlockBasedTableOptions table;
  table.block_cache = rdb::NewLRUCache(kBlockCacheBytes);
  // Indexes and filters of a table larger than memory are, too: they are cut, and cached like rows.
  table.cache_index_and_filter_blocks = true;
  table.index_type = rdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
  table.filter_policy.reset(rdb::NewBloomFilterPolicy(10));
  table.partition_filters = true;
  table.pin_top_level_index_and_filter = true;
  rdb::Options options;
  options.table_factory.reset(rdb::NewBlockBasedTableFactory(table));
  options.compression = rdb::kNoCompression;  // Rows are noise.
  options.info_log = std::make_shared<NoLog>();
  // No threads of its own: one that the system refuses would end the process.
  options.max_file_opening_threads = 1;
  options.stats_dump_period_sec = options.stats_persist_period_sec = 0;
  return options;
}

void WriteKey(int64_t id, char* to) {
  to[0] = 'r';
  const uint64_t big_endian = __builtin_bswap64(HashKey(id));
  std::memcpy(to + 1, &big_endian, sizeof big_endian);
}

// The id of a key that WriteKey wrote.
int64_t ReadKey(const rdb::Slice& key) {
  uint64_t big_endian = 0;
  std::memcpy(&big_endian, key.data() + 1, sizeof big_endian);
  return KeyOfHash(__builtin_bswap64(big_endian));
}

class RocksdbStore final : public RowStore {
 public:
  RocksdbStore(std::string directory, std::unique_ptr<rdb::DB> db)
      : directory_(std::move(directory)), db_(std::move(db)) {}
  ~RocksdbStore() override {
    const LoadScope::WithoutRefusals unrefused;  // To close a database takes memory, too.
    db_.reset();
  }

  absl::Status ReadTable() {
    std::string bytes;
    const rdb::Status status =
        db_->Get(rdb::ReadOptions(), db_->DefaultColumnFamily(), kTableKey, &bytes);
    if (status.IsNotFound()) {
      return InvalidArgument(directory_, ": RocksDB without a table; `ulf table build` makes one");
    }
    RETURN_IF_ERROR(FromRocksdb(status, directory_));
    ASSIGN_OR_RETURN(const auto table, Annotate(ParseStoredTable(bytes), directory_));
    table_ = InfoOf(table);
    return absl::OkStatus();
  }

  absl::Status ReadAll(RowSink& sink) const {
    RETURN_IF_ERROR(Annotate(sink.Begin(table_.dim, table_.rows), directory_));
    rdb::ReadOptions options;
    options.fill_cache = false;
    options.readahead_size = size_t{2} << 20;
    RowDigest digest;
    int64_t rows = 0;
    const std::unique_ptr<rdb::Iterator> at(db_->NewIterator(options));
    for (at->Seek("r"); at->Valid() && at->key().starts_with("r"); at->Next(), ++rows) {
      if (at->key().size() != kKeyBytes || at->value().size() != table_.row_bytes()) break;
      const int64_t id = ReadKey(at->key());
      digest.Add({reinterpret_cast<const char*>(&id), sizeof id});
      digest.Add({at->value().data(), at->value().size()});
      ASSIGN_OR_RETURN(float* const to, sink.NextRow());
      DecodeRow(table_.format, at->value().data(), table_.dim, to);
      RETURN_IF_ERROR(Annotate(sink.Commit(id), directory_));
    }
    RETURN_IF_ERROR(FromRocksdb(at->status(), directory_));
    if (rows == table_.rows && digest.Get() == table_.digest) return absl::OkStatus();
    return DataLoss(directory_, ": not the rows that were written; ", rows, " of ", table_.rows,
                    " can be read");
  }

  const StoredTableInfo& table() const override { return table_; }
  int64_t bytes() const override { return static_cast<int64_t>(kBlockCacheBytes); }

  void Read(absl::Span<RowRead* const> reads, TimePoint deadline) const override {
    rdb::ReadOptions options;
    char key[kKeyBytes];
    // MultiGet keeps something of the thread's that an exception for want of memory leaves in
    // disorder: the next read on the thread would end the process.  Get does not, if read-only.
    rdb::PinnableSlice value;
    for (RowRead* const read : reads) {
      for (const size_t i : read->wanted) {
        const auto left = std::chrono::duration_cast<std::chrono::microseconds>(
            deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0) return;
        // Looked at between reads of the disk.
        options.deadline = std::chrono::microseconds(rdb::Env::Default()->NowMicros()) + left;
        WriteKey(read->rows->ids()[i], key);
        value.Reset();
        const rdb::Status status =
            db_->Get(options, db_->DefaultColumnFamily(), rdb::Slice(key, kKeyBytes), &value);
        Take(i, status, value, *read);
      }
    }
  }

 private:
  void Take(size_t i, const rdb::Status& status, const rdb::Slice& value, RowRead& read) const {
    RowSet& rows = *read.rows;
    if (status.IsNotFound()) return rows.set_state(i, RowState::kMissing);
    if (status.IsTimedOut() || status.IsIncomplete() || status.IsAborted()) return;
    const std::string what = absl::StrCat(directory_, ": id ", rows.ids()[i]);
    if (!status.ok()) return read.status.Update(FromRocksdb(status, what));
    if (value.size() != rows.row_bytes()) {
      return read.status.Update(
          DataLoss(what, ": a row of ", value.size(), " bytes, want ", rows.row_bytes()));
    }
    std::memcpy(rows.row(i), value.data(), value.size());
    rows.set_state(i, RowState::kPresent);
  }

  const std::string directory_;
  std::unique_ptr<rdb::DB> db_;
  StoredTableInfo table_;
};

// RocksDB believes what has no sum: it ends the process where such a block is damaged.
absl::Status CheckSums(const InputFile& file) {
  // The last bytes of a file of blocks, formats 1 to 6: the kind of its sums first, and a number
  // last.
  constexpr uint64_t kBlocks = 0x88e241b785f4cff7;
  char footer[53];
  if (file.size() < int64_t{sizeof footer}) return absl::OkStatus();
  ASSIGN_OR_RETURN(const size_t got,
                   file.ReadAt(file.size() - int64_t{sizeof footer}, footer, sizeof footer));
  uint64_t number = 0;
  std::memcpy(&number, footer + sizeof footer - sizeof number, sizeof number);
  if (got < sizeof footer || number != kBlocks || footer[0] != 0) return absl::OkStatus();
  return InvalidArgument(file.path(), ": its blocks have no checksums");
}

// No file that leads elsewhere, none that blocks who opens it, none without checksums, and none
// that RocksDB would take into memory as a whole: it reads the list of files and settings, and
// applies the log of what was not written to files yet, of which nothing is left by who built the
// table.
absl::Status CheckFiles(const std::string& directory) {
  constexpr int64_t kMostBytes = int64_t{16} << 20;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(it->path().string()));
    const fs::path kind = it->path().extension();
    const int64_t most = kind == ".log" ? 0 : kind == ".sst" ? file.size() : kMostBytes;
    if (file.size() > most) {
      return InvalidArgument(file.path(), ": ", file.size(), " bytes, want at most ", most);
    }
    const bool manifest = absl::StartsWith(it->path().filename().string(), "MANIFEST-");
    if (manifest) RETURN_IF_ERROR(CheckManifest(file));
    RETURN_IF_ERROR(CheckSums(file));  // Whatever its name: RocksDB takes .ldb for .sst, too.
  }
  if (!error) return absl::OkStatus();
  return FileError(error.value(), absl::StrCat(directory, ": cannot be listed"));
}

// The files of a database under way.
class SstFiles {
 public:
  explicit SstFiles(std::string directory) : directory_(std::move(directory)) {}

  absl::Status Put(const rdb::Slice& key, const rdb::Slice& value) {
    if (writer_ == nullptr) {
      options_ = DatabaseOptions();
      writer_ = std::make_unique<rdb::SstFileWriter>(rdb::EnvOptions(), options_);
      paths_.push_back(absl::StrCat(directory_, "/rows-", paths_.size(), ".sst"));
      RETURN_IF_ERROR(FromRocksdb(writer_->Open(paths_.back()), paths_.back()));
    }
    RETURN_IF_ERROR(FromRocksdb(writer_->Put(key, value), paths_.back()));
    return writer_->FileSize() < kFileBytes ? absl::OkStatus() : EndFile();
  }
  absl::Status EndFile() {
    if (writer_ == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(FromRocksdb(writer_->Finish(), paths_.back()));
    writer_ = nullptr;
    return absl::OkStatus();
  }
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  const std::string directory_;
  rdb::Options options_;
  std::unique_ptr<rdb::SstFileWriter> writer_;
  std::vector<std::string> paths_;
};

absl::Status WriteRows(RowSorter& rows, int64_t all, const WriteProgress& progress, SstFiles& files,
                       RowDigest& digest) {
  SortedRows sorted(rows);
  RETURN_IF_ERROR(sorted.Start());
  char key[kKeyBytes];
  for (int64_t done = 0; !sorted.empty(); ++done) {
    const absl::string_view record(sorted.record(), rows.record_bytes());
    digest.Add(record);
    WriteKey(sorted.id(), key);
    const size_t row_bytes = record.size() - sizeof(int64_t);
    RETURN_IF_ERROR(files.Put(rdb::Slice(key, kKeyBytes), rdb::Slice(sorted.row(), row_bytes)));
    RETURN_IF_ERROR(sorted.Next());
    if (progress && done % 4096 == 0) RETURN_IF_ERROR(progress(done, all));
  }
  return files.EndFile();
}

absl::Status Ingest(const std::string& directory, const SstFiles& files,
                    const ulfd::store::v1::StoredTable& table) {
  rdb::Options options = DatabaseOptions();
  options.create_if_missing = true;
  rdb::DB* raw = nullptr;
  RETURN_IF_ERROR(FromRocksdb(rdb::DB::Open(options, directory, &raw), directory));
  const std::unique_ptr<rdb::DB> db(raw);
  rdb::IngestExternalFileOptions ingest;
  ingest.move_files = true;
  RETURN_IF_ERROR(FromRocksdb(db->IngestExternalFile(files.paths(), ingest), directory));
  RETURN_IF_ERROR(
      FromRocksdb(db->Put(rdb::WriteOptions(), kTableKey, table.SerializeAsString()), directory));
  RETURN_IF_ERROR(FromRocksdb(db->Flush(rdb::FlushOptions()), directory));
  return FromRocksdb(db->Close(), directory);
}

// Makes a directory and locks it; one that a killed process left is emptied.
absl::StatusOr<FileDescriptor> TakeDirectory(const std::string& path) {
  const bool made = mkdir(path.c_str(), 0777) == 0;
  if (!made && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be made"));
  }
  FileDescriptor lock(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems lock no directories: there a new one is as good.
  const bool locked = flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
  if (!locked && (!made || errno == EWOULDBLOCK)) {
    return AlreadyExists(path, ": is being written: ", std::strerror(errno));
  }
  // Who had the lock may have renamed the directory in between.
  struct stat opened = {}, named = {};
  if (fstat(lock.get(), &opened) != 0 || stat(path.c_str(), &named) != 0 ||
      opened.st_ino != named.st_ino) {
    return AlreadyExists(path, ": exists by now; a directory is never written to again");
  }
  std::error_code error;
  for (const fs::directory_entry& left : fs::directory_iterator(path, error)) {
    fs::remove_all(left.path(), error);
  }
  return lock;
}

absl::StatusOr<std::unique_ptr<const RocksdbStore>> Open(const std::string& directory) {
  // RocksDB would take a directory that is not there for a new database.
  RETURN_IF_ERROR(InputFile::Open(absl::StrCat(directory, "/CURRENT")).status());
  const LoadScope::WithoutRefusals unrefused;
  RETURN_IF_ERROR(CheckFiles(directory));
  rdb::DB* raw = nullptr;
  const rdb::Status opened = rdb::DB::OpenForReadOnly(DatabaseOptions(), directory, &raw);
  std::unique_ptr<rdb::DB> db(raw);
  RETURN_IF_ERROR(FromRocksdb(opened, directory));
  auto store = std::make_unique<RocksdbStore>(directory, std::move(db));
  RETURN_IF_ERROR(store->ReadTable());
  return store;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const RowStore>> OpenRocksdb(const std::string& directory) {
  return Open(directory);
}

absl::Status ReadRocksdb(const std::string& directory, RowSink& sink) {
  ASSIGN_OR_RETURN(const auto store, Open(directory));
  return store->ReadAll(sink);
}

absl::StatusOr<RowReport> WriteRocksdb(const std::string& directory, RowSorter& rows,
                                       const WriteProgress& progress) {
  absl::Status there = AlreadyExists(directory, ": exists; a directory is never written to again");
  std::error_code error;
  if (fs::exists(directory, error)) return there;
  ASSIGN_OR_RETURN(const RowReport report, rows.Finish());
  const std::string under_way = absl::StrCat(directory, ".under_way");
  ASSIGN_OR_RETURN(const FileDescriptor lock, TakeDirectory(under_way));
  const auto write = [&]() -> absl::Status {
    SstFiles files(under_way);
    RowDigest digest;
    RETURN_IF_ERROR(WriteRows(rows, report.rows, progress, files, digest));
    ulfd::store::v1::StoredTable table = DescribeRows(rows, report);
    table.set_digest(digest.Get());
    RETURN_IF_ERROR(Ingest(under_way, files, table));
    if (std::rename(under_way.c_str(), directory.c_str()) == 0) return absl::OkStatus();
    if (errno == ENOTEMPTY || errno == EEXIST) return there;  // By now.
    return absl::ErrnoToStatus(errno, absl::StrCat(directory, ": cannot be renamed to"));
  };
  const absl::Status status = write();
  if (!status.ok()) fs::remove_all(under_way, error);
  RETURN_IF_ERROR(status);
  return report;
}

}  // namespace ulfd::engine
