// Client of ulfd: deadlines, retries that obey the server's pushback, hedged calls, replicas that
// are followed by their health, one user at one replica, users by key.
// SPDX-License-Identifier: Apache-2.0
//
//   std::unique_ptr<ulfd::client::Client> client;
//   grpc::Status status = ulfd::client::Client::Create({"10.0.0.1:8500", "10.0.0.2:8500"}, {},
//                                                      &client);
//   ulfd::v1::PredictResponse response;
//   if (status.ok()) status = client->Predict(request, {.user_id = "u7"}, &response);
#ifndef ULFD_CLIENT_H_
#define ULFD_CLIENT_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/predict.pb.h"

namespace ulfd::client {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kNever{-1};
constexpr Milliseconds kP95{0};  // What 95 in 100 of the model's last calls took.

struct Options {
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // None: plain text.
  std::string token;
  std::string user_hash_key = "x-user-hash";  // By which proxies route and canaries choose.
  std::string health_service;                 // "model/NAME" follows one model; "": the server.
  Milliseconds timeout{1000};                 // Of a call, with all its attempts.
  int attempts = 3;
  Milliseconds attempt_timeout{0};    // Of each attempt; 0: what is left.
  Milliseconds hedge_after = kNever;  // Then a call goes to a second replica, too.
  double hedge_share = 0.05;          // At most so many of the calls.
  double load_factor = 1.5;  // More than so many times its share of the calls is too much for one.
};

struct CallOptions {
  std::string user_id;      // Whoever it is has one replica; only a hash of it is sent.
  std::string priority;     // "high", "normal" or "low".
  Milliseconds timeout{0};  // 0: that of the client.
};

class Core;

// Thread-safe.
class Client {
 public:
  using Done = std::function<void(grpc::Status, ulfd::v1::PredictResponse)>;

  // targets: HOST:PORT of every replica.  INVALID_ARGUMENT names what is wrong.
  static grpc::Status Create(const std::vector<std::string>& targets, const Options& options,
                             std::unique_ptr<Client>* client);
  // Waits for the calls under way, each of which ends by its deadline.  Not from a callback.
  ~Client();

  // With user_key and user_version, the user's features are sent only where they are not yet.
  grpc::Status Predict(ulfd::v1::PredictRequest request, CallOptions options,
                       ulfd::v1::PredictResponse* response);
  // `done` is called once, perhaps before this returns, by a thread of gRPC that must not be held
  // up.
  void Predict(ulfd::v1::PredictRequest request, CallOptions options, Done done);

 private:
  explicit Client(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace ulfd::client

#endif  // ULFD_CLIENT_H_
