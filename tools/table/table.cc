// ulf table: builds, shows, checks and exports table files.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/new_file.h"
#include "base/status_macros.h"
#include "engine/embedding/table_file.h"
#include "engine/embedding/table_file_writer.h"
#include "engine/stores/redis_store.h"
#include "engine/stores/rocksdb_store.h"
#include "tools/cli/commands.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/text_table.h"
#include "tools/model/model_flags.h"
#include "tools/table/delta.h"
#include "tools/table/row_sources.h"

namespace ulfd::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kSynopsis[] =
    "ulf table build OUT INPUT... [--to=file|rocksdb|redis] [--rows=fp32|fp16|bf16|int8] "
    "[--memory=MIB]\n"
    "       ulf table inspect|verify FILE.ulft\n"
    "       ulf table export FILE.ulft [OUT.txt]\n"
    "       ulf table diff FROM TO [PREFIX]\n"
    "       ulf table push VERSION_DIR --epoch=N [--base_epoch=N] [--event_time=TIME]\n"
    "                      [put:TABLE=INPUT[,INPUT]...] [drop:TABLE=IDS]... [weights:FILE]";
constexpr char kDescription[] =
    "Table files are mapped by the daemon as they are: any size, loaded at once, shared by "
    "versions\n"
    "and daemons.  An embedding configuration names them where it would name a text table.\n\n"
    "build    writes one from text tables (ID,v1,v2,...; the first line may name the columns,\n"
    "         quotes may stand around numbers), table files, or directories of RocksDB that it\n"
    "         made.  It takes pairs KEYS.npy ROWS.npy (integers that fit int64; any floats), .npz\n"
    "         and safetensors files with the arrays keys and rows, and HugeCTR's directories with\n"
    "         the files key and emb_vector.  Without keys - an .npy matrix, a file with one "
    "array,\n"
    "         as a weight of PyTorch's - rows go by number, from 0.  Prints what the format of "
    "the\n"
    "         rows costs (`ulf compare`: in scores).  Temporary space: once the rows.\n"
    "         --to=rocksdb makes a directory of RocksDB, for a manifest with\n"
    "         store { rocksdb: \"OUT\" }.  --to=redis writes to a Redis Cluster, under the name\n"
    "         OUT: rows that are there are replaced, others stay, and the mean row becomes that\n"
    "         of these rows.\n"
    "inspect  prints what the header says.\n"
    "verify   reads all of the file: checksums, ids, values.\n"
    "export   writes text, with as many digits as bring the same values back.\n"
    "diff     counts the rows that tell two tables apart; with PREFIX, writes PREFIX.ulft (to "
    "put)\n"
    "         and PREFIX.ids (to drop), which push takes.\n"
    "push     writes a delta of the tables of a version that a daemon serves, whole or not at\n"
    "         all.  It reads the version, and is refused as the daemon would refuse the delta.  "
    "Of\n"
    "         a model's directory it takes the highest version.  INPUT: as for build.";

// One line at the terminal that is written again and again; nothing elsewhere.
class Progress {
 public:
  ~Progress() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }
  void Show(absl::string_view what, uint64_t done, uint64_t all) {
    if (!terminal_ || Clock::now() < next_) return;
    next_ = Clock::now() + std::chrono::milliseconds(200);
    shown_ = true;
    const std::string of = all == 0 ? "" : absl::StrFormat(", %d %%", 100 * done / all);
    absl::FPrintF(stderr, "\r\x1b[K%s %s%s", what, HumanNumber(static_cast<double>(done)), of);
    std::fflush(stderr);
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  Clock::time_point next_;
};

// Counts what goes through to the writer.
class CountingSink final : public engine::RowSink {
 public:
  CountingSink(engine::RowSink& to, Progress& progress) : to_(to), progress_(progress) {}
  absl::Status Begin(int64_t dim, int64_t rows) override { return to_.Begin(dim, rows); }
  absl::StatusOr<float*> NextRow() override { return to_.NextRow(); }
  absl::Status Commit(int64_t id) override {
    if (++rows_ % 4096 == 0) {
      RETURN_IF_ERROR(CheckInterrupted());
      progress_.Show("rows read:", rows_, 0);
    }
    return to_.Commit(id);
  }

 private:
  engine::RowSink& to_;
  Progress& progress_;
  uint64_t rows_ = 0;
};

// What `build` was told.
struct BuildOptions {
  std::string out, to = "file";
  const RedisFlags* redis = nullptr;
  int64_t partitions = 0;
  absl::Span<const std::string> inputs;
  engine::RowFormat format = engine::RowFormat::kFp32;
  int64_t memory_bytes = 0;
  DumpKeys keys = DumpKeys::kInt64;
};

void PrintErrors(engine::RowFormat format, const engine::RowReport& report) {
  if (format == engine::RowFormat::kFp32) return;
  absl::PrintF("error of a value: largest %.3g (id %d), root mean square %.3g (values: %.3g)\n",
               report.largest_error, report.largest_error_id, report.root_mean_square_error,
               report.root_mean_square);
}

engine::WriteProgress RowsWritten(Progress& progress) {
  return [&progress](int64_t done, int64_t all) {
    progress.Show("rows written:", static_cast<uint64_t>(done), static_cast<uint64_t>(all));
    return CheckInterrupted();
  };
}

// What is wrong with the rows is wrong with the inputs; other errors name the output.
absl::Status OfBuild(const BuildOptions& options, const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  return Annotate(status, absl::StrJoin(options.inputs, ", "));
}

absl::Status BuildFile(const BuildOptions& options) {
  Progress progress;
  engine::TableFileWriter writer(options.out, {.format = options.format,
                                               .memory_bytes = options.memory_bytes,
                                               .progress = RowsWritten(progress)});
  CountingSink sink(writer, progress);
  RETURN_IF_ERROR(ReadRows(options.inputs, options.keys, sink));
  const auto report = writer.Finish();
  if (!report.ok()) return OfBuild(options, report.status());
  const double plain = static_cast<double>(report->rows) * static_cast<double>(8 + 4 * report->dim);
  absl::PrintF("%s: %s rows of %d values, %s, %s, %.2f x ids and floats\n", options.out,
               WithCommas(report->rows), report->dim, engine::Name(options.format),
               HumanBytes(static_cast<int64_t>(report->bytes)),
               static_cast<double>(report->bytes) / plain);
  PrintErrors(options.format, *report);
  return absl::OkStatus();
}

absl::Status BuildStore(const BuildOptions& options) {
  Progress progress;
  std::string sorted_at = options.out;
  engine::RowSorterOptions sorting{.format = options.format, .memory_bytes = options.memory_bytes};
  if (options.to == "redis") {  // OUT is no path.
    const char* const directory = std::getenv("TMPDIR");
    sorted_at = directory == nullptr ? "/tmp" : directory;
    sorting.unnamed = true;
  }
  engine::RowSorter rows(sorted_at, sorting);
  CountingSink sink(rows, progress);
  RETURN_IF_ERROR(ReadRows(options.inputs, options.keys, sink));
  absl::StatusOr<engine::RowReport> report;
  if (options.to == "redis") {
    const auto clusters = options.redis->Clusters({options.redis->node()});
    ASSIGN_OR_RETURN(const auto cluster, clusters->Get(options.redis->node()));
    const engine::RedisTableOptions table{.table = options.out,
                                          .partitions = static_cast<uint32_t>(options.partitions)};
    report = engine::WriteRedis(*cluster, table, rows, RowsWritten(progress));
  } else {
    report = engine::WriteRocksdb(options.out, rows, RowsWritten(progress));
  }
  if (!report.ok()) return OfBuild(options, report.status());
  absl::PrintF("%s: %s, %s rows of %d values, %s\n", options.out, options.to,
               WithCommas(report->rows), report->dim, engine::Name(options.format));
  PrintErrors(options.format, *report);
  return absl::OkStatus();
}

absl::Status Inspect(const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const engine::TableFileHeader header, engine::ReadTableHeader(file));
  absl::PrintF(
      "%s: table file, version %d\n  digest     %s\n  rows       %s\n  values     %d, %s\n"
      "  slots      %s of %d bytes\n  ids        %s\n  file       %s\n",
      path, header.version, absl::BytesToHexString(engine::DigestOf(header)),
      WithCommas(static_cast<int64_t>(header.rows)), header.dim,
      engine::Name(static_cast<engine::RowFormat>(header.format)),
      WithCommas(static_cast<int64_t>(header.slots())), header.slot_bytes,
      header.consecutive()
          ? absl::StrCat("consecutive, from ", header.first_id())
          : absl::StrCat("hashed, ", WithCommas(static_cast<int64_t>(header.displaced)),
                         " displaced"),
      HumanBytes(static_cast<int64_t>(header.file_bytes)));
  return absl::OkStatus();
}

absl::Status Check(const std::string& path) {
  Progress progress;
  return engine::VerifyTableFile(
      path, [&](uint64_t done, uint64_t all) { progress.Show("bytes checked:", done, all); });
}

absl::Status Verify(const std::string& path) {
  RETURN_IF_ERROR(Check(path));
  absl::PrintF("%s: every byte is as it was written\n", path);
  return absl::OkStatus();
}

absl::Status Export(const std::string& path, absl::StatusOr<NewFile> out) {
  RETURN_IF_ERROR(out.status());
  RETURN_IF_ERROR(Check(path));
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const auto rows, engine::OpenTableFile(file));
  Progress progress;
  std::vector<float> values(static_cast<size_t>(rows->dim));
  std::string line;
  uint64_t done = 0;
  RETURN_IF_ERROR(engine::ForEachRow(*rows, [&](int64_t id, const char* row) {
    engine::DecodeRow(rows->format, row, rows->dim, values.data());
    line = absl::StrCat(id);
    for (const float value : values) {
      char text[32];
      line += ',';
      line.append(text, std::to_chars(text, text + sizeof text, value).ptr);
    }
    line += '\n';
    RETURN_IF_ERROR(out->Write(line));
    if (++done % 4096 == 0) {
      progress.Show("rows written:", done, static_cast<uint64_t>(rows->rows));
    }
    return absl::OkStatus();
  }));
  RETURN_IF_ERROR(rows->file->Check());
  return out->Commit();
}

absl::Status Push(const FlagSet& flags, const std::string& event_time, int64_t base_epoch,
                  absl::Span<const std::string> parts, PushOptions options) {
  CatchInterrupts();
  if (!flags.IsSet("epoch")) return UsageError("push wants --epoch");
  if (parts.empty()) return UsageError("push wants something to put, drop or replace");
  if (flags.IsSet("base_epoch")) options.base_epoch = base_epoch;
  std::string error;
  if (event_time != "now" &&
      !absl::ParseTime(absl::RFC3339_full, event_time, &options.event_time.emplace(), &error)) {
    return UsageError("--event_time: ", error);
  }
  return PushDelta(options, parts);
}

absl::Status CheckFlags(const FlagSet& flags, absl::string_view action, absl::string_view to) {
  const bool build = action == "build", push = action == "push";
  RETURN_IF_ERROR(flags.Only(build || push, "build and push", {"rows", "memory", "keys"}));
  RETURN_IF_ERROR(flags.Only(build, "build", {"to"}));
  RETURN_IF_ERROR(flags.Only(build && to == "redis", "build --to=redis", {"partitions"}));
  RETURN_IF_ERROR(
      flags.Only((build && to == "redis") || push, "build --to=redis and push", {"redis"}));
  return flags.Only(push, "push", {"epoch", "base_epoch", "event_time", "layer_plugins"});
}

absl::Status Build(const BuildOptions& options) {
  CatchInterrupts();
  if (options.to == "redis" && options.redis->node().empty()) {
    return UsageError("--to=redis wants --redis");
  }
  if (options.to == "file") return BuildFile(options);
  if (options.to == "rocksdb" || options.to == "redis") return BuildStore(options);
  return UsageError("--to: ", options.to, ", want file, rocksdb or redis");
}

// The actions that read tables alone.
absl::Status Look(absl::Span<const std::string> words) {
  const std::string& action = words[0];
  for (size_t i = 1; i < words.size() && i <= (action == "diff" ? 2 : 1); ++i) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(words[i], ignored)) continue;
    return InvalidArgument(words[i],
                           ": a directory, want a table file; `ulf table build FILE.ulft ",
                           words[i], "` makes one of a directory of RocksDB");
  }
  if (action == "export" && words.size() <= 3) {
    return Export(words[1],
                  words.size() == 3 ? NewFile::Create(words[2]) : NewFile::StandardOutput());
  }
  if ((action == "inspect" || action == "verify") && words.size() == 2) {
    return action == "inspect" ? Inspect(words[1]) : Verify(words[1]);
  }
  if (action == "diff" && (words.size() == 3 || words.size() == 4)) {
    return DiffTables(words[1], words[2], words.size() == 4 ? words[3] : "");
  }
  return UsageError("\"", action, "\": want build OUT INPUT..., inspect FILE, verify ",
                    "FILE, export FILE [OUT], diff FROM TO [PREFIX] or push DIR");
}

}  // namespace

absl::Status RunTable(Args args) {
  std::string format_name = "fp32", event_time = "now", keys_name = "int64";
  BuildOptions options;
  int64_t memory_mib = 256, epoch = 0, base_epoch = 0;
  FlagSet flags(kSynopsis, kDescription);
  flags.Add("to", "build: file, rocksdb or redis.", &options.to);
  flags.Add("partitions",
            "--to=redis: hash tags that the table is spread over; 0: as it is, or 256.",
            &options.partitions, 0, 16384);
  flags.Add("rows", "build: fp32, fp16, bf16, or int8: a byte per value, scale and offset per row.",
            &format_name);
  flags.Add(
      "memory",
      "build: MiB for rows that are sorted; beside it half a byte for each row, and 7000 rows.",
      &memory_mib, 1, int64_t{1} << 24);
  flags.Add("keys", "build: type of the keys in a file key: int64 or uint32.", &keys_name);
  flags.Add("epoch", "push: number of the delta, above those that are there.", &epoch, 1,
            INT64_MAX);
  flags.Add("base_epoch", "push: the epoch that it follows; default: the last one that is there.",
            &base_epoch, 0, INT64_MAX);
  flags.Add("event_time", "push: up to when the rows are true, as 2026-01-31T12:00:00Z, or now.",
            &event_time);
  ModelFlags model_flags(flags);
  model_flags.AddRedis(flags);
  ASSIGN_OR_RETURN(std::vector<std::string> words, flags.Parse(args, 2, 1 << 20));
  const std::string& action = words[0];
  RETURN_IF_ERROR(CheckFlags(flags, action, options.to));
  RETURN_IF_ERROR(model_flags.redis().Check());
  const auto format = engine::RowFormatOf(format_name);
  if (!format.has_value()) {
    return UsageError("--rows: ", format_name, ", want fp32, fp16, bf16 or int8");
  }
  const auto keys = DumpKeysOf(keys_name);
  if (!keys.has_value()) {
    return UsageError("--keys: ", keys_name, ", want int64 or uint32");
  }
  if (action == "push") {
    RETURN_IF_ERROR(model_flags.Load());
    return Push(flags, event_time, base_epoch, absl::MakeSpan(words).subspan(2),
                {.version_directory = VersionDirectory(words[1]),
                 .epoch = epoch,
                 .format = *format,
                 .memory_bytes = memory_mib << 20,
                 .keys = *keys,
                 .model_flags = &model_flags});
  }
  if (action == "build") {
    if (words.size() < 3) return UsageError("build wants OUT.ulft and at least one INPUT");
    options.out = words[1];
    options.inputs = absl::MakeSpan(words).subspan(2);
    options.format = *format;
    options.memory_bytes = memory_mib << 20;
    options.keys = *keys;
    options.redis = &model_flags.redis();
    return Build(options);
  }
  return Look(words);
}

}  // namespace ulfd::tools
