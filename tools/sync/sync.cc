// ulf sync: copies versions from a store into a model repository.
// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "tools/cli/commands.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/print.h"
#include "tools/sync/source.h"
#include "tools/sync/syncer.h"

namespace ulfd::tools {
namespace {

constexpr char kSynopsis[] = "ulf sync SRC DST [--watch=SECONDS] [--keep=N]";
constexpr char kDescription[] =
    R"(Copies SRC/NAME/VERSION/ to DST/NAME/VERSION/, and deltas/EPOCH/ of versions, once SRC has
their _SUCCESS.  Each appears whole or not at all, after lengths, sums of the manifest and
table files were checked; what is there is not copied again, and what was cut off goes on
where it ended.  A source without any complete version is an error.

SRC: a directory; http://... or https://..., where directories are index pages (nginx,
Apache, python3 -m http.server); s3://BUCKET[/PREFIX], with AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY in the environment.)";
constexpr size_t kMaxErrorBytes = 1000;

void Say(std::FILE* out, const std::string& line) {
  Print(out, line + "\n");
  std::fflush(out);
}

void SleepUnlessInterrupted(absl::Duration time) {
  const absl::Time end = absl::Now() + time;
  while (!Interrupted() && absl::Now() < end) {
    // A signal between the check and poll is seen after a tenth of a second.
    poll(nullptr, 0, 100);
  }
}

// Goes on through errors: they are of the store, which may be mended.
absl::Status Watch(Syncer& syncer, int64_t seconds) {
  while (!Interrupted()) {
    for (const absl::Status& error : syncer.Pass()) {
      if (absl::IsCancelled(error)) continue;
      Say(stderr, absl::StrCat("ulf sync: ", Printable(error.message(), kMaxErrorBytes)));
    }
    SleepUnlessInterrupted(absl::Seconds(seconds));
  }
  return absl::OkStatus();
}

absl::Status Once(Syncer& syncer) {
  const std::vector<absl::Status> errors = syncer.Pass();
  if (errors.empty()) return CheckInterrupted();
  for (size_t i = 0; i + 1 < errors.size(); ++i) {
    Say(stderr, absl::StrCat("ulf sync: ", Printable(errors[i].message(), kMaxErrorBytes)));
  }
  return Clip(errors.back(), kMaxErrorBytes);
}

}  // namespace

absl::Status RunSync(Args args) {
  SourceOptions from{.region = "us-east-1", .stopped = &Interrupted};
  SyncOptions options{.stopped = &Interrupted,
                      .report = [](const std::string& line) { Say(stdout, line); }};
  int64_t watch = 0;
  FlagSet flags(kSynopsis, kDescription);
  flags.Add("watch", "Looks again after so many seconds, until SIGTERM; 0: once.", &watch, 0,
            86400);
  flags.Add("keep",
            "Copies the N highest complete versions of each model, and then deletes lower ones in "
            "DST, whether or not the daemon serves them: keep those to go back to.  0: all.",
            &options.keep, 0, 1000);
  flags.Add("tries", "How often each request is tried where the trouble may pass.", &options.tries,
            1, 100);
  flags.Add("endpoint", "URL of the object store; default: Amazon's of the region.",
            &from.endpoint);
  flags.Add("region", "Of the object store.", &from.region);
  flags.Add("ca", "PEM file: an https server's certificate must come from one of these.",
            &from.ca_file);
  flags.Add("token_file", "File that holds a bearer token for http and https.", &from.token_file);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 2, 2));
  const bool s3 = absl::StartsWith(positional[0], "s3://");
  RETURN_IF_ERROR(flags.Only(s3, "s3://", {"endpoint", "region"}));
  RETURN_IF_ERROR(
      flags.Only(absl::StrContains(positional[0], "://"), "URLs", {"ca", "token_file"}));
  RETURN_IF_ERROR(flags.Only(!s3, "http:// and https://", {"token_file"}));
  absl::StatusOr<std::unique_ptr<Source>> source = OpenSource(positional[0], from);
  if (absl::IsInvalidArgument(source.status())) return UsageError(source.status().message());
  RETURN_IF_ERROR(source.status());
  options.to = positional[1];
  options.list_tries = watch > 0 ? 1 : options.tries;
  CatchInterrupts();  // The first process of a container gets no SIGTERM that it does not ask for.
  Syncer syncer(**source, options);
  return watch > 0 ? Watch(syncer, watch) : Once(syncer);
}

}  // namespace ulfd::tools
