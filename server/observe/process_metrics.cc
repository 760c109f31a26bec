// SPDX-License-Identifier: Apache-2.0
#include "server/observe/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/text_file.h"

namespace ulfd::server {
namespace {

// Field `number` of proc(5)'s stat, counted from 1.  The second one, the program's name, may hold
// spaces.
std::optional<double> StatField(const std::string& stat, size_t number) {
  const size_t end_of_name = stat.rfind(')');
  if (end_of_name == std::string::npos || number < 3) return std::nullopt;
  const std::vector<std::string> rest =
      absl::StrSplit(stat.substr(end_of_name + 1), ' ', absl::SkipEmpty());
  double value = 0;
  if (number - 3 >= rest.size() || !absl::SimpleAtod(rest[number - 3], &value)) return std::nullopt;
  return value;
}

std::optional<double> BootTime() {
  const std::string stat = ReadFileOrPipe("/proc/stat").value_or("");
  for (absl::string_view line : absl::StrSplit(stat, '\n')) {
    double value = 0;
    if (absl::StartsWith(line, "btime ") && absl::SimpleAtod(line.substr(6), &value)) return value;
  }
  return std::nullopt;
}

std::optional<double> OpenFiles() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return std::nullopt;
  int n = -3;  // ".", ".." and the directory itself.
  while (readdir(directory) != nullptr) ++n;
  closedir(directory);
  return n;
}

}  // namespace

void CollectProcessMetrics(MetricPage& page) {
  const auto gauge = [&](const char* name, const char* help, std::optional<double> value) {
    if (value) page.AddGauge(name, help, *value);
  };
  const std::string stat = ReadFileOrPipe("/proc/self/stat").value_or("");
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const double page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
  const auto user = StatField(stat, 14), system = StatField(stat, 15), start = StatField(stat, 22);
  const auto resident_pages = StatField(stat, 24), boot = BootTime();
  if (user && system) {
    page.AddCounter("process_cpu_seconds_total", "CPU time used, user and system",
                    (*user + *system) / ticks);
  }
  if (resident_pages) {
    page.AddGauge("process_resident_memory_bytes", "Resident memory", *resident_pages * page_bytes);
  }
  gauge("process_virtual_memory_bytes", "Virtual memory", StatField(stat, 23));
  if (start && boot) {
    page.AddGauge("process_start_time_seconds", "Start, seconds since 1970",
                  *boot + *start / ticks);
  }
  gauge("process_threads", "Threads", StatField(stat, 20));
  gauge("process_open_fds", "Open file descriptors", OpenFiles());
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    page.AddGauge("process_max_fds", "Limit of open file descriptors",
                  static_cast<double>(limit.rlim_cur));
  }
}

}  // namespace ulfd::server
