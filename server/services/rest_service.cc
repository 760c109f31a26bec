// SPDX-License-Identifier: Apache-2.0
#include "server/services/rest_service.h"

#include <pthread.h>

#include <chrono>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/percent_encoding.h"
#include "server/rpc/grpc_status.h"
#include "server/scheduler/refusal.h"
#include "server/scoring/kserve_codec.h"
#include "server/services/kserve_models.h"
#include "server/services/scoring_rpc.h"
#include "server/system/peer.h"

namespace ulfd::server {
namespace {

using Json = nlohmann::ordered_json;

// Of replies with bytes behind their JSON, and of such requests.
constexpr char kJsonBytes[] = "Inference-Header-Content-Length";
// What is left of a deadline, as gRPC's grpc-timeout.
constexpr char kTimeoutMs[] = "ulfd-timeout-ms";

constexpr size_t kUsualBytes = 64 << 10;

constexpr char kLive[] = "/v2/health/live";
constexpr char kReady[] = "/v2/health/ready";

// Open to everybody, as the pages for probes are.
bool IsProbe(absl::string_view path) { return path == kLive || path == kReady; }

int HttpCodeOf(const absl::Status& status) {
  using Code = absl::StatusCode;
  static constexpr std::pair<Code, int> kCodes[] = {{Code::kOk, 200},
                                                    {Code::kInvalidArgument, 400},
                                                    {Code::kUnauthenticated, 401},
                                                    {Code::kPermissionDenied, 403},
                                                    {Code::kNotFound, 404},
                                                    {Code::kFailedPrecondition, 412},
                                                    {Code::kResourceExhausted, 429},
                                                    {Code::kUnimplemented, 501},
                                                    {Code::kUnavailable, 503},
                                                    {Code::kDeadlineExceeded, 504}};
  for (const auto& [code, http] : kCodes) {
    if (code == status.code()) return http;
  }
  return 500;
}

// Whatever bytes callers sent are text in the reply.
std::string TextOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpReply JsonReply(int code, std::string body) {
  return {.code = code, .content_type = "application/json", .body = std::move(body)};
}

HttpReply ErrorReply(const absl::Status& status) {
  Json error;
  error["error"] = ClipError(status.message());
  HttpReply reply = JsonReply(HttpCodeOf(status), TextOf(error));
  if (const auto retry = RetryAfter(status); retry.has_value()) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(*retry);
    reply.headers.emplace_back("Retry-After", absl::StrCat(seconds.count()));
  }
  if (absl::IsUnauthenticated(status)) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

// nullopt: it is one of `allowed`, a list as HTTP writes it.
std::optional<HttpReply> RefuseMethod(const HttpExchange& exchange, absl::string_view allowed) {
  const HttpRequest& request = exchange.request();
  const std::vector<absl::string_view> methods = absl::StrSplit(allowed, ", ");
  if (absl::c_linear_search(methods, request.method)) return std::nullopt;
  HttpReply reply =
      ErrorReply(InvalidArgument(request.method, " ", request.path, ": want ", allowed));
  reply.code = 405;
  reply.headers.emplace_back("Allow", std::string(allowed));
  return reply;
}

// max(): none.
absl::StatusOr<TimePoint> DeadlineOf(const HttpRequest& request, TimePoint now) {
  const absl::string_view text = request.Header(kTimeoutMs);
  if (text.empty()) return TimePoint::max();
  constexpr int64_t kLongestMs = 86400000;
  int64_t ms = 0;
  if (!absl::SimpleAtoi(text, &ms) || ms < 1 || ms > kLongestMs) {
    return InvalidArgument(kTimeoutMs, ": want a number from 1 to ", kLongestMs);
  }
  return now + std::chrono::milliseconds(ms);
}

// How much of the body is JSON.
absl::StatusOr<size_t> JsonBytesOf(const HttpExchange& exchange) {
  const absl::string_view encoding = exchange.request().Header("content-encoding");
  if (!encoding.empty() && !absl::EqualsIgnoreCase(encoding, "identity")) {
    return Unimplemented("the body is compressed; this server takes identity only");
  }
  const absl::string_view text = exchange.request().Header(kJsonBytes);
  if (text.empty()) return exchange.body().size();
  uint64_t bytes = 0;
  if (absl::SimpleAtoi(text, &bytes)) return static_cast<size_t>(bytes);
  return InvalidArgument(kJsonBytes, ": want a number");
}

// An infer request by HTTP.
class RestCarrier final : public InferCarrier {
 public:
  explicit RestCarrier(std::unique_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  HttpExchange& exchange() { return *exchange_; }
  BinaryOutputs& binary() { return binary_; }
  bool cancelled() const override { return exchange_->cancelled(); }
  std::string peer() const override { return exchange_->peer(); }
  void Finish(const absl::Status& status) override {
    if (!status.ok()) return exchange_->Reply(ErrorReply(status));
    absl::StatusOr<InferBody> body = WriteInferBody(response(), binary_);
    if (!body.ok()) return exchange_->Reply(ErrorReply(body.status()));
    const bool binary = body->json_bytes < body->text.size();
    HttpReply reply = JsonReply(200, std::move(body->text));
    if (binary) {
      reply.content_type = "application/octet-stream";
      reply.headers.emplace_back(kJsonBytes, absl::StrCat(body->json_bytes));
    }
    exchange_->Reply(std::move(reply));
  }

 private:
  const std::unique_ptr<HttpExchange> exchange_;
  BinaryOutputs binary_;
};

template <typename Tensors>
Json TensorsOf(const Tensors& tensors) {
  Json list = Json::array();
  for (const auto& tensor : tensors) {
    Json shape = Json::array();
    for (const int64_t size : tensor.shape()) shape.push_back(size);
    list.push_back({{"name", tensor.name()}, {"datatype", tensor.datatype()}, {"shape", shape}});
  }
  return list;
}

}  // namespace

RestService::RestService(const ServingContext& context, const Security& security,
                         const Readiness& readiness, std::string server_version,
                         const JsonLimits& limits, int threads)
    : context_(context),
      security_(security),
      readiness_(readiness),
      server_version_(std::move(server_version)),
      limits_(limits) {
  for (int i = 0; i < threads; ++i) {
    // Large bodies take long to read, however many there are: one thread leaves them to others.
    const size_t most_bytes = i == 1 ? kUsualBytes : std::numeric_limits<size_t>::max();
    threads_.emplace_back([this, most_bytes] {
      pthread_setname_np(pthread_self(), "ulfd-rest");
      Loop(most_bytes);
    });
  }
}

RestService::~RestService() {
  std::list<Client> waiting;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    waiting.swap(waiting_);
    changed_.NotifyAll();
  }
  for (const Client& client : waiting) {
    for (const auto& exchange : client.exchanges) exchange->Reply(ErrorReply(ShuttingDown()));
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<std::optional<std::vector<std::string>>> RestService::ClientOf(
    const HttpRequest& request, const std::string& peer) const {
  const bool from_here =
      absl::StartsWith(peer, "ipv4:127.") || absl::StartsWith(peer, "ipv6:%5B::1%5D:");
  return security_.ClientOfHttp(request.path, request.Header("authorization"), from_here);
}

std::optional<HttpReply> RestService::Admit(const HttpRequest& request,
                                            const std::string& peer) const {
  if (IsProbe(request.path)) return std::nullopt;
  const absl::Status status = ClientOf(request, peer).status();
  return status.ok() ? std::nullopt : std::make_optional(ErrorReply(status));
}

void RestService::Take(std::unique_ptr<HttpExchange> exchange) {
  if (AnswerProbe(*exchange)) return;  // Which waits for nobody's JSON.
  const std::string name = server::ClientOf(exchange->peer());
  MutexLock lock(mu_);
  auto client = absl::c_find_if(waiting_, [&](const Client& known) { return known.name == name; });
  if (client == waiting_.end()) client = waiting_.insert(client, {.name = name});
  client->exchanges.push_back(std::move(exchange));
  changed_.NotifyAll();
}

std::unique_ptr<HttpExchange> RestService::Next(size_t most_bytes) {
  for (auto client = waiting_.begin(); client != waiting_.end(); ++client) {
    const auto next = absl::c_find_if(client->exchanges, [most_bytes](const auto& exchange) {
      return exchange->body().size() <= most_bytes;
    });
    if (next == client->exchanges.end()) continue;
    std::unique_ptr<HttpExchange> exchange = std::move(*next);
    client->exchanges.erase(next);
    waiting_.splice(waiting_.end(), waiting_, client);
    if (client->exchanges.empty()) waiting_.erase(client);
    return exchange;
  }
  return nullptr;
}

void RestService::Loop(size_t most_bytes) {
  while (true) {
    std::unique_ptr<HttpExchange> exchange;
    {
      MutexLock lock(mu_);
      while (!stopping_ && (exchange = Next(most_bytes)) == nullptr) changed_.Wait(mu_);
      if (stopping_) return;
    }
    try {
      if (!exchange->cancelled()) Answer(std::move(exchange));
    } catch (const std::bad_alloc&) {
      // The end of the exchange has answered.
    }
  }
}

bool RestService::AnswerProbe(HttpExchange& exchange) const {
  if (!IsProbe(exchange.request().path)) return false;
  if (exchange.request().path == kLive) {
    exchange.Reply(JsonReply(200, R"({"live":true})"));
    return true;
  }
  const bool ready = readiness_.ServerReady();
  exchange.Reply(JsonReply(ready ? 200 : 503, ready ? R"({"ready":true})" : R"({"ready":false})"));
  return true;
}

void RestService::Answer(std::unique_ptr<HttpExchange> exchange) {
  const absl::string_view path = exchange->request().path;
  const auto client = ClientOf(exchange->request(), exchange->peer());
  if (!client.ok()) return exchange->Reply(ErrorReply(client.status()));
  absl::string_view rest = path;
  if (absl::ConsumePrefix(&rest, "/v2/models/")) {
    return AnswerModel(std::move(exchange), rest, *client);
  }
  if (path != "/v2" && path != "/v2/") {
    return exchange->Reply(ErrorReply(NotFound("no such path below /v2")));
  }
  if (auto refused = RefuseMethod(*exchange, "GET, HEAD"); refused.has_value()) {
    return exchange->Reply(*std::move(refused));
  }
  const Json server = {
      {"name", "ulfd"}, {"version", server_version_}, {"extensions", {"binary_tensor_data"}}};
  exchange->Reply(JsonReply(200, TextOf(server)));
}

void RestService::AnswerModel(std::unique_ptr<HttpExchange> exchange, absl::string_view rest,
                              const std::optional<std::vector<std::string>>& client) {
  // NAME [versions VERSION] [ready|infer]
  std::vector<std::string> words;
  for (const absl::string_view word : absl::StrSplit(rest, '/')) {
    words.push_back(DecodePercent(word));
  }
  const std::string name = words[0];
  words.erase(words.begin());
  std::string version;
  const bool has_version = words.size() >= 2 && words[0] == "versions";
  if (has_version) {
    version = words[1];
    words.erase(words.begin(), words.begin() + 2);
  }
  absl::StatusOr<ModelChoice> choice = ChoiceOf(name, version);
  if (has_version && version.empty()) choice = NotFound("no version behind versions/");
  const std::string action = words.empty() ? "" : words[0];
  if (words.size() > 1 || (!action.empty() && action != "ready" && action != "infer")) {
    choice = NotFound("no such path below /v2/models");
  }
  if (choice.ok()) {
    auto refused = RefuseMethod(*exchange, action == "infer" ? "POST" : "GET, HEAD");
    if (refused.has_value()) return exchange->Reply(*std::move(refused));
    choice->client = client;
    if (action == "infer") return Infer(std::move(exchange), *std::move(choice));
  }
  const absl::Status allowed = choice.ok() ? context_.models.CheckAccess(*choice) : choice.status();
  if (!allowed.ok()) return exchange->Reply(ErrorReply(allowed));
  if (action.empty()) return Describe(*exchange, *choice);
  const bool ready = readiness_.ModelReady(*choice);
  const Json body = {{"name", name}, {"ready", ready}};
  exchange->Reply(JsonReply(ready ? 200 : 503, TextOf(body)));
}

void RestService::Describe(HttpExchange& exchange, const ModelChoice& choice) const {
  const auto handle = context_.models.Find(choice);
  if (!handle.ok()) return exchange.Reply(ErrorReply(handle.status()));
  inference::ModelMetadataResponse metadata;
  DescribeServed((*handle)->model->info(), context_.models.VersionsOf(choice.name), metadata);
  const Json model = {{"name", metadata.name()},
                      {"versions", std::vector<std::string>(metadata.versions().begin(),
                                                            metadata.versions().end())},
                      {"platform", metadata.platform()},
                      {"inputs", TensorsOf(metadata.inputs())},
                      {"outputs", TensorsOf(metadata.outputs())}};
  exchange.Reply(JsonReply(200, TextOf(model)));
}

void RestService::Infer(std::unique_ptr<HttpExchange> exchange, ModelChoice choice) {
  auto carrier = std::make_unique<RestCarrier>(std::move(exchange));
  const HttpRequest& head = carrier->exchange().request();
  absl::StatusOr<TimePoint> deadline = DeadlineOf(head, context_.clock.Now());
  const absl::StatusOr<size_t> json_bytes = JsonBytesOf(carrier->exchange());
  absl::Status read = deadline.ok() ? json_bytes.status() : deadline.status();
  if (read.ok()) {
    read = ParseInferBody(carrier->exchange().body(), *json_bytes, limits_,
                          carrier->mutable_request(), carrier->binary());
  }
  if (!read.ok()) {
    context_.metrics.CountWithoutModel(read.code());
    return carrier->Finish(read);
  }
  carrier->mutable_request().set_model_name(choice.name);
  if (choice.version.has_value()) {
    carrier->mutable_request().set_model_version(absl::StrCat(*choice.version));
  }
  // The head lives as long as the carrier, and the lookup no longer than this call, which may see
  // the end of the carrier.
  const std::vector<std::pair<std::string, std::string>> headers(head.headers.begin(),
                                                                 head.headers.end());
  const MetadataLookup metadata = [&headers](const std::string& key) -> absl::string_view {
    for (const auto& [name, value] : headers) {
      if (absl::EqualsIgnoreCase(name, key)) return value;
    }
    return "";
  };
  StartScoring(std::move(carrier), std::move(choice), metadata, *deadline, context_);
}

}  // namespace ulfd::server
