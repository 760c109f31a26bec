// ulf recordings: shows what the daemon's recorder kept, and takes single calls out of it.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/errors.h"
#include "base/recording/recording_file.h"
#include "base/status_macros.h"
#include "engine/tensor/tensor.h"
#include "tools/cli/commands.h"
#include "tools/cli/print.h"
#include "tools/cli/text_table.h"
#include "tools/load/recording_arrays.h"
#include "tools/load/recordings.h"

namespace ulfd::tools {
namespace {

constexpr char kDescription[] =
    R"(Lists the recorded calls in a file of the daemon's recorder, or in all files in a folder
(`ulf load --replay` sends them again).  With --inputs and --outputs one call is written as
npz files instead, which `ulf score`, `ulf predict` and `ulf compare` take.  Of a call with
top_k these are the scores of its best ads alone, and top_k.indices says which ones.  With
--requests all calls are written as one file without their scores: what warms a version (in
its warmup/) that is to score otherwise than the one that was recorded.)";

struct Options {
  int64_t record = 0, rows = 50;
  std::string inputs, outputs, requests;
};

std::string TimeText(int64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%E3S", absl::FromUnixNanos(unix_ns), absl::UTCTimeZone());
}

// "score [200, 2]"
std::string OutputsText(const recording::Recording& record) {
  return absl::StrJoin(record.outputs(), ", ", [](std::string* text, const auto& output) {
    absl::StrAppend(text, output.name(), " ", engine::ToString(output.shape()));
  });
}

// Sums over the records that have been seen.
struct Totals {
  int64_t records = 0, bytes = 0, ads = 0;
};

void PrintDamage(const recording::Damage& damage) {
  const std::string passed_over = DescribeDamage(damage);
  if (!passed_over.empty()) Print(stdout, absl::StrCat("Note: ", passed_over, "\n"));
}

absl::Status List(const std::vector<std::string>& files, int64_t rows) {
  TextTable table({"call>", "received (UTC)", "model", "version>", "api", "ads>", "bytes>", "ms>",
                   "time-out, ms>", "outputs"});
  Totals totals;
  recording::Damage damage;
  const auto add = [&](recording::Recording& record) {
    ++totals.records;
    totals.bytes += static_cast<int64_t>(record.request().size());
    totals.ads += record.ads();
    if (rows != 0 && totals.records > rows) return absl::OkStatus();
    table.AddRow({absl::StrCat(totals.records), TimeText(record.received_unix_ns()), record.model(),
                  absl::StrCat(record.version()),
                  record.api() == recording::v1::API_NATIVE ? "native" : "kserve",
                  WithCommas(record.ads()),
                  WithCommas(static_cast<int64_t>(record.request().size())),
                  absl::StrFormat("%.3f", static_cast<double>(record.duration_us()) / 1e3),
                  record.timeout_us() == 0
                      ? "-"
                      : absl::StrFormat("%.1f", static_cast<double>(record.timeout_us()) / 1e3),
                  OutputsText(record)});
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachRecording(files, add, &damage));
  if (!table.empty()) Print(stdout, table.ToString());
  if (rows != 0 && totals.records > rows) {
    Print(stdout, absl::StrCat("  ... and ", WithCommas(totals.records - rows),
                               " more (--rows=0 shows all)\n"));
  }
  Print(stdout, absl::StrCat(WithCommas(totals.records), " calls in ", files.size(),
                             " files: ", WithCommas(totals.ads), " ads, ", HumanBytes(totals.bytes),
                             " of requests\n"));
  PrintDamage(damage);
  return absl::OkStatus();
}

absl::Status Extract(const std::vector<std::string>& files, const Options& options) {
  recording::Recording found;
  int64_t number = 0;
  recording::Damage damage;
  RETURN_IF_ERROR(ForEachRecording(
      files,
      [&](recording::Recording& record) {
        if (++number == options.record) found = std::move(record);
        return absl::OkStatus();
      },
      &damage));
  if (number < options.record) {
    return NotFound("--record: ", options.record, ", but there are ", number, " calls");
  }
  if (!options.inputs.empty()) {
    ASSIGN_OR_RETURN(const engine::NpzArrays arrays, InputsOfRecording(found));
    RETURN_IF_ERROR(engine::WriteNpz(options.inputs, arrays));
  }
  if (options.outputs.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const engine::NpzArrays arrays, OutputsOfRecording(found));
  return engine::WriteNpz(options.outputs, arrays);
}

absl::Status WriteRequests(const std::vector<std::string>& files, const std::string& path) {
  ASSIGN_OR_RETURN(auto writer, recording::RecordingWriter::Create(path));
  int64_t requests = 0;
  recording::Damage damage;
  absl::Status written = ForEachRecording(
      files,
      [&](recording::Recording& record) {
        ++requests;
        record.clear_outputs();
        record.clear_indices();
        return writer.Append(record.SerializeAsString());
      },
      &damage);
  if (!written.ok()) {
    unlink(path.c_str());
    return written;
  }
  Print(stdout, absl::StrCat(path, ": ", WithCommas(requests), " requests without scores\n"));
  PrintDamage(damage);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunRecordings(Args args) {
  Options options;
  FlagSet flags(
      "ulf recordings FILE|FOLDER [--record=N --inputs=IN.npz --outputs=OUT.npz] "
      "[--requests=OUT.ulfrec]",
      kDescription);
  flags.Add("rows", "At most so many calls are listed; 0: all.", &options.rows, 0);
  flags.Add("record", "Number of the call to write, as listed.", &options.record, 1);
  flags.Add("inputs", "npz file to write the call's request to.", &options.inputs);
  flags.Add("outputs", "npz file to write the call's scores to.", &options.outputs);
  flags.Add("requests", "New file to write all requests to, without their scores.",
            &options.requests);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 1, 1));
  const bool extract = !options.inputs.empty() || !options.outputs.empty();
  if (extract != flags.IsSet("record")) {
    return UsageError("--record goes with --inputs or --outputs");
  }
  if (!options.requests.empty() && (extract || flags.IsSet("rows"))) {
    return UsageError("--requests writes all calls: it goes with none of the others");
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> files, RecordingFiles(positional[0]));
  if (!options.requests.empty()) return WriteRequests(files, options.requests);
  return extract ? Extract(files, options) : List(files, options.rows);
}

}  // namespace ulfd::tools
