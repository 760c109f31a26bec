// KServe v2 over HTTP: /v2 and below.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SERVICES_REST_SERVICE_H_
#define ULFD_SERVER_SERVICES_REST_SERVICE_H_

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "server/observe/http_server.h"
#include "server/rpc/listener_security.h"
#include "server/scoring/inference_json.h"
#include "server/scoring/score_call.h"
#include "server/services/readiness.h"

namespace ulfd::server {

// Bodies are read on threads of this class, never on the server's; scores are computed by the
// workers, as those of gRPC calls are.
class RestService {
 public:
  // The references are borrowed.  `server_version`: what /v2 says.
  RestService(const ServingContext& context, const Security& security, const Readiness& readiness,
              std::string server_version, const JsonLimits& limits, int threads);
  // Requests that nobody has read yet get 503.
  ~RestService();

  // Both from any thread; never block.
  // Before the body is read: nullopt, or what is answered to whom it is not for.
  std::optional<HttpReply> Admit(const HttpRequest& request, const std::string& peer) const;
  void Take(std::unique_ptr<HttpExchange> exchange);

 private:
  struct Client {
    std::string name;  // ClientOf.
    std::deque<std::unique_ptr<HttpExchange>> exchanges;
  };
  // The next one with a body of at most so many bytes, or null.
  std::unique_ptr<HttpExchange> Next(size_t most_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::optional<std::vector<std::string>>> ClientOf(const HttpRequest& request,
                                                                   const std::string& peer) const;
  // most_bytes: larger bodies are left to other threads.
  void Loop(size_t most_bytes);
  // Whether it was a probe.
  bool AnswerProbe(HttpExchange& exchange) const;
  void Answer(std::unique_ptr<HttpExchange> exchange);
  // `rest`: behind "/v2/models/".
  void AnswerModel(std::unique_ptr<HttpExchange> exchange, absl::string_view rest,
                   const std::optional<std::vector<std::string>>& client);
  void Infer(std::unique_ptr<HttpExchange> exchange, ModelChoice choice);
  void Describe(HttpExchange& exchange, const ModelChoice& choice) const;

  const ServingContext& context_;
  const Security& security_;
  const Readiness& readiness_;
  const std::string server_version_;
  const JsonLimits limits_;

  Mutex mu_;
  CondVar changed_;
  // Clients take turns; the next one is in front.
  std::list<Client> waiting_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // Last: they use everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SERVICES_REST_SERVICE_H_
