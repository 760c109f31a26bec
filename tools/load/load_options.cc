// SPDX-License-Identifier: Apache-2.0
#include "tools/load/load_options.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "tools/load/ad_counts.h"

namespace ulfd::tools {
namespace {

constexpr char kDescription[] =
    R"(Offers load to the server at HOST:PORT (several: in turn) and reports how long calls took and
what became of them.

Calls are sent when they are due, whether or not earlier ones have been answered, and their
latency counts from the time when they were due (corrected for coordinated omission); the
latency from the time of sending is shown beside it.  --closed_loop=N instead keeps N calls
under way; its corrected figures assume that a call was due every median latency.

Requests are made up from the model's metadata: users by a Zipf distribution, each always
with the same features, ids by another; or they come from --inputs or --replay.  The same
flags and seed give the same requests at the same times.)";

// Texts of flags that hold more than one value.
struct Texts {
  std::string api = "native", arrival = "poisson", burst = "factor=5,period=1s,length=100ms";
  std::string ids = "1..100000", ints = "1..1";
  std::vector<std::string> feature_ids, shapes;
};

void AddTraffic(LoadOptions& o, Texts& t, FlagSet& flags) {
  flags.Add("arrival",
            "When calls are due: poisson, constant, bursts, or recorded (with --replay: as they "
            "came).",
            &t.arrival);
  flags.Add("rate", "Calls a second, on average.", &o.rate, 0.001, 1e6);
  flags.Add("burst",
            "With --arrival=bursts: the rate is `factor` times as high for `length` of "
            "every `period`; --rate stays the mean.",
            &t.burst);
  flags.Add("speed", "With --arrival=recorded: that many times as fast.", &o.speed, 1e-6, 1e6);
  flags.Add("closed_loop",
            "Keeps so many calls under way instead of sending them when they are due; 0: off.",
            &o.closed_loop, 0, 100000);
  flags.Add("duration",
            "How long calls are sent, warm-up included.  With --arrival=recorded the "
            "default is once through the recording, and more repeats it.",
            &o.duration, kShortestTimeout, absl::Hours(240));
  flags.Add("warmup", "Calls due in the first so long are not counted.", &o.warmup,
            absl::ZeroDuration());
  flags.Add("calls", "Ends after so many calls; 0: no limit.", &o.calls, 0, 1e12);
  flags.Add("timeout",
            "Deadline of each call; a replayed call has its recorded one unless this is "
            "given.",
            &o.timeout, absl::Milliseconds(1), absl::Hours(1));
}

void AddConnections(LoadOptions& o, FlagSet& flags) {
  flags.Add("channels", "Connections to each target.", &o.channels, 1, 1000);
  flags.Add("max_in_flight",
            "A call that is due while so many are unanswered is not sent, but "
            "counted.",
            &o.max_in_flight, 1, 1e6);
  flags.Add("follow_health",
            "Watches grpc.health.v1 of every target and sends nothing to one that "
            "does not say SERVING.",
            &o.follow_health);
}

void AddRequests(LoadOptions& o, Texts& t, FlagSet& flags) {
  flags.Add("ads",
            "Ads of a request: N, uniform:LOW..HIGH, "
            "lognormal:median=100,sigma=1,min=1,max=2000, or mix:ADS@SHARE,ADS@SHARE.",
            &o.ads);
  flags.Add("ads_from", "Recording (file or folder) whose numbers of ads are drawn from.",
            &o.ads_from);
  flags.Add("users", "Different users.", &o.random.users, 1, 1e12);
  flags.Add("user_zipf", "Exponent of the users' frequencies; 0: all alike.", &o.random.user_zipf,
            0, 10);
  flags.Add("ids", "Range of the ids of sparse features.", &t.ids);
  flags.Add("id_zipf", "Exponent of the ids' frequencies, the lowest id being the most frequent.",
            &o.random.id_zipf, 0, 10);
  flags.Add("user_ids", "Ids of each sparse feature of a user.", &o.random.user_ids, 0, 1e6);
  flags.Add("ad_ids", "Ids of each sparse feature of an ad.", &o.random.ad_ids, 0, 1e6);
  flags.Add("feature_ids", "NAME:N pairs: ids of single features.", &t.feature_ids);
  flags.Add("ints", "Range of the elements of dense integer inputs.", &t.ints);
  flags.Add("shape", "NAME:DIMxDIM pairs: shapes that the metadata leaves open; -1: a row per ad.",
            &t.shapes);
  flags.Add("pool",
            "Requests made before the load starts and sent in turn; 0: each when it is due.",
            &o.pool, 0, 1e7);
  flags.Add("inputs", "npz file with the one request to send (as for ulf predict).", &o.inputs);
  flags.Add("replay", "Recording (file or folder) whose requests are sent.", &o.replay);
  flags.Add("output", "Names of the outputs wanted, separated by commas; empty: all.", &o.outputs);
  flags.Add("top_k", "Asks for the best k ads; 0: all.  Native API only.", &o.top_k, 0, 1e9);
  flags.Add("seed", "Another seed, another load.", &o.random.seed);
}

void AddAll(LoadOptions& o, Texts& t, FlagSet& flags) {
  flags.Add("model", "Name of the model; may be left out with --replay.", &o.model);
  flags.Add("version", "Version of the model; 0: the server chooses.", &o.version, 0);
  flags.Add("label", "Label of the version, such as \"canary\".  Native API only.", &o.label);
  flags.Add("api", "native (ulfd.v1.PredictionService) or kserve (any KServe v2 server).", &t.api);
  AddTraffic(o, t, flags);
  AddConnections(o, flags);
  AddRequests(o, t, flags);
  flags.Add("json", "Prints the summary as JSON.", &o.json);
  flags.Add("plot", "SVG file for a plot of latency and calls over time.", &o.plot);
  flags.Add("live", "A line a second on standard error even if that is no terminal.", &o.live);
}

absl::Status ParseRange(const char* flag, const std::string& text, int64_t& first, int64_t& last) {
  const std::pair<std::string, std::string> ends = absl::StrSplit(text, absl::MaxSplits("..", 1));
  if (text.find("..") == std::string::npos || !absl::SimpleAtoi(ends.first, &first) ||
      !absl::SimpleAtoi(ends.second, &last) || last < first ||
      static_cast<double>(last) - static_cast<double>(first) > 1e15) {
    return UsageError("--", flag, ": \"", text, "\", want LOW..HIGH");
  }
  return absl::OkStatus();
}

absl::Status ParseBursts(const std::string& text, Bursts& bursts) {
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(part, '=');
    absl::Duration time;
    if (field.first == "factor" && absl::SimpleAtod(field.second, &bursts.factor) &&
        bursts.factor >= 1 && bursts.factor <= 1e6) {
      continue;
    }
    double* const target = field.first == "period"   ? &bursts.period_s
                           : field.first == "length" ? &bursts.length_s
                                                     : nullptr;
    if (target == nullptr || !absl::ParseDuration(field.second, &time) ||
        time <= absl::ZeroDuration() || time > absl::Hours(24)) {
      return UsageError("--burst: \"", part, "\", want factor=5,period=1s,length=100ms");
    }
    *target = absl::ToDoubleSeconds(time);
  }
  if (bursts.length_s >= bursts.period_s) {
    return UsageError("--burst: the length must be shorter than the period");
  }
  return absl::OkStatus();
}

absl::Status ParseFeatures(const Texts& t, LoadOptions& o) {
  for (const std::string& text : t.feature_ids) {
    const size_t colon = text.rfind(':');
    int64_t count = 0;
    if (colon == std::string::npos || colon == 0 ||
        !absl::SimpleAtoi(text.substr(colon + 1), &count) || count < 0 || count > 1000000) {
      return UsageError("--feature_ids: \"", text, "\", want NAME:N");
    }
    o.random.feature_ids[text.substr(0, colon)] = count;
  }
  for (const std::string& text : t.shapes) {
    const size_t colon = text.rfind(':');
    std::vector<int64_t> dims;
    bool good = colon != std::string::npos && colon > 0;
    for (absl::string_view dim : absl::StrSplit(good ? text.substr(colon + 1) : "", 'x')) {
      int64_t value = 0;
      good &= absl::SimpleAtoi(dim, &value) && value <= (1 << 24) &&
              (value >= 1 || (value == -1 && dims.empty()));
      dims.push_back(value);
    }
    if (!good) return UsageError("--shape: \"", text, "\", want NAME:-1x10 or NAME:1x10");
    o.shapes[text.substr(0, colon)] = std::move(dims);
  }
  return absl::OkStatus();
}

absl::Status ParseWords(const Texts& t, const FlagSet& flags, LoadOptions& o) {
  if (t.api == "kserve") {
    o.api = LoadApi::kKserve;
  } else if (t.api != "native") {
    return UsageError("--api: \"", t.api, "\", want native or kserve");
  }
  const std::pair<absl::string_view, ArrivalKind> arrivals[] = {
      {"poisson", ArrivalKind::kPoisson},
      {"constant", ArrivalKind::kConstant},
      {"bursts", ArrivalKind::kBursts},
      {"recorded", ArrivalKind::kRecorded}};
  const auto* const arrival =
      std::find_if(std::begin(arrivals), std::end(arrivals),
                   [&](const auto& known) { return known.first == t.arrival; });
  if (arrival == std::end(arrivals)) {
    return UsageError("--arrival: \"", t.arrival, "\", want poisson, constant, bursts or recorded");
  }
  o.arrival = o.closed_loop != 0 ? ArrivalKind::kClosedLoop : arrival->second;
  // Without a rate a recording is replayed as it came.
  if (!o.replay.empty() && !flags.IsSet("arrival") && !flags.IsSet("rate") && o.closed_loop == 0) {
    o.arrival = ArrivalKind::kRecorded;
  }
  RETURN_IF_ERROR(ParseBursts(t.burst, o.bursts));
  RETURN_IF_ERROR(ParseRange("ids", t.ids, o.random.first_id, o.random.last_id));
  RETURN_IF_ERROR(ParseRange("ints", t.ints, o.random.first_int, o.random.last_int));
  return ParseFeatures(t, o);
}

absl::Status CheckCombinations(const LoadOptions& o, const FlagSet& flags) {
  const auto excludes = [&](const char* a, const char* b) {
    return flags.IsSet(a) && flags.IsSet(b)
               ? UsageError("only one of --", a, " and --", b, " can be given")
               : absl::OkStatus();
  };
  const std::pair<const char*, const char*> exclusive[] = {
      {"version", "label"},    {"inputs", "replay"},       {"ads", "ads_from"},
      {"closed_loop", "rate"}, {"closed_loop", "arrival"}, {"inputs", "ads"},
      {"replay", "ads"},       {"inputs", "ads_from"},     {"replay", "ads_from"},
      {"replay", "api"},
  };
  for (const auto& [a, b] : exclusive) RETURN_IF_ERROR(excludes(a, b));
  if (o.model.empty() && o.replay.empty()) return UsageError("--model is needed");
  if (o.arrival == ArrivalKind::kRecorded && o.replay.empty()) {
    return UsageError("--arrival=recorded wants --replay");
  }
  if (o.arrival == ArrivalKind::kRecorded && flags.IsSet("rate")) {
    return UsageError("--arrival=recorded decides on the rate: change it with --speed");
  }
  RETURN_IF_ERROR(flags.Only(o.arrival == ArrivalKind::kRecorded, "--arrival=recorded", {"speed"}));
  RETURN_IF_ERROR(flags.Only(o.arrival == ArrivalKind::kBursts, "--arrival=bursts", {"burst"}));
  RETURN_IF_ERROR(flags.Only(o.api != LoadApi::kKserve, "the native API", {"label", "top_k"}));
  RETURN_IF_ERROR(flags.Only(o.inputs.empty() && o.replay.empty(),
                             "made-up requests, not --inputs or --replay",
                             {"users", "user_zipf", "ids", "id_zipf", "user_ids", "ad_ids",
                              "feature_ids", "ints", "shape", "pool"}));
  if (o.warmup >= o.duration && (o.arrival != ArrivalKind::kRecorded || o.duration_given)) {
    return UsageError("--warmup must be shorter than --duration");
  }
  if (absl::StatusOr<AdCounts> ads = AdCounts::Parse(o.ads); !ads.ok()) {
    return UsageError("--ads: ", ads.status().message());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoadOptions> ParseLoadOptions(Args args) {
  LoadOptions options;
  Texts texts;
  FlagSet flags("ulf load HOST:PORT [HOST:PORT...] --model=NAME [--rate=N] [--duration=T]",
                kDescription);
  AddAll(options, texts, flags);
  const ConnectionFlags connection(flags);
  ASSIGN_OR_RETURN(options.targets, flags.Parse(args, 1, std::numeric_limits<int>::max()));
  options.duration_given = flags.IsSet("duration");
  options.timeout_given = flags.IsSet("timeout");
  ASSIGN_OR_RETURN(options.connection, connection.Options());
  RETURN_IF_ERROR(ParseWords(texts, flags, options));
  RETURN_IF_ERROR(CheckCombinations(options, flags));
  return options;
}

std::string DescribeArrivals(const LoadOptions& o) {
  switch (o.arrival) {
    case ArrivalKind::kPoisson:
      return absl::StrFormat("Poisson arrivals, %g/s", o.rate);
    case ArrivalKind::kConstant:
      return absl::StrFormat("constant arrivals, %g/s", o.rate);
    case ArrivalKind::kBursts:
      return absl::StrFormat("bursts of %g times the rate for %g s of every %g s, %g/s on average",
                             o.bursts.factor, o.bursts.length_s, o.bursts.period_s, o.rate);
    case ArrivalKind::kRecorded:
      return absl::StrFormat("recorded arrivals, speed %g", o.speed);
    case ArrivalKind::kClosedLoop:
      return absl::StrFormat("closed loop, %d calls at a time", o.closed_loop);
  }
  return "";
}

}  // namespace ulfd::tools
