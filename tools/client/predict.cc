// ulf predict: calls a running daemon and prints the scores.
// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text_file.h"
#include "engine/weights/proto_file.h"
#include "tools/cli/commands.h"
#include "tools/client/clients.h"

namespace ulfd::tools {
namespace {

constexpr char kDescription[] =
    R"(Calls the daemon at HOST:PORT and prints one line per ad.  The request comes from
  --inputs=FILE.npz   arrays named like the graph's inputs ("ad.ids", "mask"; "/" is
                      written as %2F), sorted into user and ad features by asking the daemon
                      for the model's metadata; or from
  --request=FILE      a ulfd.v1.PredictRequest, text (.textproto) or binary (.pb); the flags
                      below then override what the file says.)";

struct Options {
  std::string model, label, inputs, request, top_k_output, save, request_id, row_names;
  std::vector<std::string> outputs;
  int64_t version = 0, rows = 20;
  int32_t top_k = 0, top_k_column = 0;
  bool kserve = false, timings = false;
  absl::Duration timeout = absl::Seconds(10);
};

void AddFlags(Options& o, FlagSet& flags) {
  flags.Add("model", "Name of the model.", &o.model);
  flags.Add("version", "Version of the model; 0: the daemon chooses.", &o.version, 0);
  flags.Add("label", "Label of the version, such as \"canary\".", &o.label);
  flags.Add("inputs", "npz file with the request's arrays.", &o.inputs);
  flags.Add("request", "File with a PredictRequest.", &o.request);
  flags.Add("output", "Names of the outputs wanted, separated by commas; empty: all.", &o.outputs);
  flags.Add("top_k", "Returns only the best k ads; 0: all in the order of the request.", &o.top_k,
            0);
  flags.Add("top_k_output", "Output that orders the ads; empty: the first one.", &o.top_k_output);
  flags.Add("top_k_column", "Column of that output; -1 is the last one.", &o.top_k_column);
  flags.Add("timings", "Prints where the daemon's time went.", &o.timings);
  flags.Add("request_id", "Echoed and logged by the daemon.", &o.request_id);
  flags.Add("kserve", "Calls the KServe v2 API instead of the native one; wants --inputs.",
            &o.kserve);
  flags.Add("timeout", "Deadline of each call.", &o.timeout, kShortestTimeout);
  flags.Add("row_names", "File with one line per ad of the request, printed beside the scores.",
            &o.row_names);
  flags.Add("rows", "At most so many rows are printed; 0: all.", &o.rows, 0);
  flags.Add("outputs", "npz file to write the outputs to.", &o.save);
}

absl::Status CheckOptions(const Options& o, const FlagSet& flags) {
  if (o.inputs.empty() == o.request.empty()) {
    return UsageError("one of --inputs and --request is needed");
  }
  if (o.request.empty() && o.model.empty()) return UsageError("--model is needed");
  if (o.version != 0 && !o.label.empty()) {
    return UsageError("only one of --version and --label can be given");
  }
  RETURN_IF_ERROR(
      flags.Only(o.top_k > 0 || !o.request.empty(), "--top_k", {"top_k_output", "top_k_column"}));
  return flags.Only(!o.kserve, "the native API", {"request", "label", "top_k", "timings"});
}

absl::StatusOr<ulfd::v1::PredictRequest> ReadRequest(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, ReadFileOrPipe(path));
  ulfd::v1::PredictRequest request;
  if (absl::EndsWith(path, ".pb")) {
    if (request.ParseFromString(content)) return request;
    return InvalidArgument(path, ": no binary PredictRequest");
  }
  RETURN_IF_ERROR(engine::ParseTextProto(content, path, request));
  return request;
}

void Override(const Options& o, const FlagSet& flags, ulfd::v1::PredictRequest& request) {
  request.mutable_model()->MergeFrom(SpecOf(o.model, o.version, o.label));
  if (!o.outputs.empty()) *request.mutable_outputs() = {o.outputs.begin(), o.outputs.end()};
  if (flags.IsSet("top_k") && o.top_k == 0) request.clear_top_k();
  if (o.top_k > 0 || request.has_top_k()) {
    const bool made = !request.has_top_k();
    ulfd::v1::TopK& top_k = *request.mutable_top_k();
    if (o.top_k > 0) top_k.set_k(o.top_k);
    if (made || flags.IsSet("top_k_output")) top_k.set_output(o.top_k_output);
    if (made || flags.IsSet("top_k_column")) top_k.set_column(o.top_k_column);
  }
  if (!o.request_id.empty()) request.set_request_id(o.request_id);
  if (o.timings) request.set_return_timings(true);
}

absl::StatusOr<Reply> Call(const Options& o, const FlagSet& flags, const Connection& server) {
  if (o.kserve) {
    ASSIGN_OR_RETURN(const engine::NpzArrays arrays, engine::ReadNpz(o.inputs));
    const KserveCall call{
        .model = o.model, .version = o.version, .outputs = o.outputs, .request_id = o.request_id};
    return CallModelInfer(server, call, arrays, o.timeout);
  }
  ulfd::v1::PredictRequest request;
  if (!o.request.empty()) {
    ASSIGN_OR_RETURN(request, ReadRequest(o.request));
  } else {
    ASSIGN_OR_RETURN(const engine::NpzArrays arrays, engine::ReadNpz(o.inputs));
    ASSIGN_OR_RETURN(const auto metadata,
                     CallGetModelMetadata(server, SpecOf(o.model, o.version, o.label), o.timeout));
    ASSIGN_OR_RETURN(request, RequestFromArrays(arrays, metadata));
  }
  Override(o, flags, request);
  return CallPredict(server, request, o.timeout);
}

absl::StatusOr<std::vector<std::string>> ReadRowNames(const std::string& path) {
  if (path.empty()) return std::vector<std::string>();
  ASSIGN_OR_RETURN(std::string content, ReadFileOrPipe(path));
  if (absl::EndsWith(content, "\n")) content.pop_back();
  return std::vector<std::string>(absl::StrSplit(content, '\n'));
}

}  // namespace

absl::Status RunPredict(Args args) {
  Options options;
  FlagSet flags("ulf predict HOST:PORT (--inputs=FILE.npz --model=NAME | --request=FILE) [flags]",
                kDescription);
  AddFlags(options, flags);
  const ConnectionFlags connection_flags(flags);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 1, 1));
  RETURN_IF_ERROR(CheckOptions(options, flags));
  RETURN_IF_ERROR(CheckTarget(positional[0]));
  ASSIGN_OR_RETURN(const Connector connector, Connector::Create(connection_flags));
  PrintOptions print{.max_rows = options.rows};
  ASSIGN_OR_RETURN(print.row_names, ReadRowNames(options.row_names));
  const Connection server = connector.Connect(positional[0]);
  ASSIGN_OR_RETURN(const Reply reply, Call(options, flags, server));
  RETURN_IF_ERROR(PrintReply(reply, print));
  return options.save.empty() ? absl::OkStatus() : SaveReply(reply, options.save);
}

}  // namespace ulfd::tools
