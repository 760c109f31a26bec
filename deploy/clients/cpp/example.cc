// Scores two ads for each of some users.
// SPDX-License-Identifier: Apache-2.0
//
//   ulfd_client_example HOST:PORT[,HOST:PORT...] MODEL AD_FEATURE [USERS]
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "ulfd_client.h"

namespace {

grpc::Status Run(const std::vector<std::string>& targets, const std::string& model,
                 const std::string& feature, int users) {
  std::unique_ptr<ulfd::client::Client> client;
  grpc::Status status =
      ulfd::client::Client::Create(targets, {.timeout = ulfd::client::Milliseconds(5000)}, &client);
  for (int user = 0; status.ok() && user < users; ++user) {
    ulfd::v1::PredictRequest request;
    request.mutable_model()->set_name(model);
    ulfd::v1::Feature& ads = *request.add_ad_features();
    ads.set_name(feature);
    for (int id : {1, 2}) ads.mutable_sparse()->add_ids(id);
    ulfd::v1::PredictResponse response;
    status = client->Predict(request, {.user_id = "user-" + std::to_string(user)}, &response);
    for (const ulfd::v1::OutputTensor& output : response.outputs()) {
      std::cout << model << " v" << response.model().version() << " " << output.name() << ":";
      for (float value : output.values()) std::cout << " " << value;
      std::cout << "\n";
    }
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "ulfd_client_example HOST:PORT[,HOST:PORT...] MODEL AD_FEATURE [USERS]\n";
    return 2;
  }
  std::vector<std::string> targets;
  std::istringstream list(argv[1]);
  for (std::string target; std::getline(list, target, ',');) targets.push_back(target);
  const grpc::Status status = Run(targets, argv[2], argv[3], argc > 4 ? std::atoi(argv[4]) : 1);
  if (status.ok()) return 0;
  std::cerr << status.error_message() << "\n";
  return 1;
}
