// Makes calls with deploy/clients/cpp as a test tells it to: a JSON object with the options of the
// client on the first line, then one with a request on each, made `burst` times at once; a line of
// JSON comes back for every call.
// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <condition_variable>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "deploy/clients/cpp/ulfd_client.h"

namespace {

using google::protobuf::Struct;
using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageToJsonString;
using ulfd::client::Milliseconds;

class Given {
 public:
  explicit Given(const std::string& line) {
    if (!JsonStringToMessage(line, &fields_).ok()) std::abort();
  }
  bool Has(const std::string& name) const { return fields_.fields().contains(name); }
  const google::protobuf::Value& At(const std::string& name) const {
    return fields_.fields().at(name);
  }
  std::string Text(const std::string& name) const {
    return Has(name) ? At(name).string_value() : "";
  }
  double Number(const std::string& name, double otherwise) const {
    return Has(name) ? At(name).number_value() : otherwise;
  }
  Milliseconds Time(const std::string& name, Milliseconds otherwise) const {
    if (Text(name) == "p95") return ulfd::client::kP95;
    return Has(name) ? Milliseconds(static_cast<int>(1000 * At(name).number_value())) : otherwise;
  }

 private:
  Struct fields_;
};

ulfd::client::Options OptionsOf(const Given& given) {
  ulfd::client::Options options;
  options.token = given.Text("token");
  options.health_service = given.Text("health_service");
  if (given.Has("user_hash_key")) options.user_hash_key = given.Text("user_hash_key");
  options.timeout = given.Time("timeout", options.timeout);
  options.attempts = static_cast<int>(given.Number("attempts", options.attempts));
  options.attempt_timeout = given.Time("attempt_timeout", options.attempt_timeout);
  options.hedge_after = given.Time("hedge_after", options.hedge_after);
  options.hedge_share = given.Number("hedge_share", options.hedge_share);
  options.load_factor = given.Number("load_factor", options.load_factor);
  return options;
}

std::string Answer(const grpc::Status& status, const ulfd::v1::PredictResponse& response) {
  std::string text;
  if (status.ok()) {
    if (!MessageToJsonString(response, &text).ok()) std::abort();
    return text;
  }
  Struct answer;
  (*answer.mutable_fields())["code"].set_number_value(status.error_code());
  (*answer.mutable_fields())["details"].set_string_value(status.error_message());
  if (!MessageToJsonString(answer, &text).ok()) std::abort();
  return text;
}

// One call waits for its answer; several get it by callbacks.
void Make(ulfd::client::Client& client, const ulfd::v1::PredictRequest& request,
          const ulfd::client::CallOptions& options, int burst) {
  if (burst == 1) {
    ulfd::v1::PredictResponse response;
    const grpc::Status status = client.Predict(request, options, &response);
    std::cout << Answer(status, response) << std::endl;
    return;
  }
  std::mutex mu;
  std::condition_variable all;
  int left = burst;
  for (int i = 0; i < burst; ++i) {
    client.Predict(request, options, [&](grpc::Status status, ulfd::v1::PredictResponse response) {
      const std::lock_guard lock(mu);
      std::cout << Answer(status, response) << std::endl;
      if (--left == 0) all.notify_all();
    });
  }
  std::unique_lock lock(mu);
  all.wait(lock, [&] { return left == 0; });
}

}  // namespace

int main() {
  std::string line;
  std::getline(std::cin, line);
  const Given first(line);
  std::vector<std::string> targets;
  for (const auto& target : first.At("targets").list_value().values()) {
    targets.push_back(target.string_value());
  }
  std::unique_ptr<ulfd::client::Client> client;
  const grpc::Status status = ulfd::client::Client::Create(targets, OptionsOf(first), &client);
  if (!status.ok()) {
    std::cerr << status.error_message() << "\n";
    return 1;
  }
  while (std::getline(std::cin, line)) {
    const Given given(line);
    std::string json;
    ulfd::v1::PredictRequest request;
    if (!MessageToJsonString(given.At("request"), &json).ok() ||
        !JsonStringToMessage(json, &request).ok()) {
      std::abort();
    }
    Make(*client, request,
         {.user_id = given.Text("user"),
          .priority = given.Text("priority"),
          .timeout = given.Time("timeout", Milliseconds(0))},
         static_cast<int>(given.Number("burst", 1)));
  }
  return 0;
}
