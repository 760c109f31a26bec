// By gRPC's C interface, the only one that replaces certificates after they were checked: with the
// C++ file watcher, a bad file takes the good certificate down.
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/listener_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/impl/grpc_library.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "server/rpc/grpc_status.h"

namespace ulfd::server {
namespace {

absl::string_view View(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// What gRPC's handshakes ask for the certificate.
class CertificateSource {
 public:
  explicit CertificateSource(const Reloaded<TlsMaterial>& material) : material_(material) {}

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<CertificateSource*>(self)->Fetch(config);
  }

 private:
  grpc_ssl_certificate_config_reload_status Fetch(grpc_ssl_server_certificate_config** config) {
    const std::shared_ptr<const TlsMaterial> material = material_.Get();
    MutexLock lock(mu_);
    if (material == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair = {material->private_key.c_str(),
                                             material->certificate_chain.c_str()};
    // gRPC insists on issuers of clients' certificates; where it asks for none, it does not use
    // them.
    const std::string& issuers =
        material->client_ca.empty() ? material->certificate_chain : material->client_ca;
    *config = grpc_ssl_server_certificate_config_create(issuers.c_str(), &pair, 1);
    given_ = material;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const Reloaded<TlsMaterial>& material_;
  Mutex mu_;
  std::shared_ptr<const TlsMaterial> given_ ABSL_GUARDED_BY(mu_);
};

std::vector<std::string> Values(const grpc_auth_context* context, const char* name) {
  std::vector<std::string> values;
  grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(context, name);
  while (const grpc_auth_property* property = grpc_auth_property_iterator_next(&it)) {
    values.emplace_back(property->value, property->value_length);
  }
  return values;
}

void CheckCall(void* state, grpc_auth_context* context, const grpc_metadata* metadata, size_t count,
               grpc_process_auth_metadata_done_cb done, void* user_data) {
  const auto& authenticator = *static_cast<const Authenticator*>(state);
  CallFacts call;
  for (size_t i = 0; i < count; ++i) {
    const absl::string_view key = View(metadata[i].key);
    if (key == ":path") call.path = View(metadata[i].value);
    if (key == "authorization") call.authorization.push_back(View(metadata[i].value));
  }
  call.certificate_names = Values(context, GRPC_X509_SAN_PROPERTY_NAME);
  if (call.certificate_names.empty()) {
    call.certificate_names = Values(context, GRPC_X509_CN_PROPERTY_NAME);
  }
  const grpc::Status status = ToGrpcStatus(authenticator.Check(call));
  done(user_data, nullptr, 0, nullptr, 0, static_cast<grpc_status_code>(status.error_code()),
       status.error_message().c_str());
}

class Credentials final : public grpc::ServerCredentials {
 public:
  Credentials(const PortSecurity& security, bool unix_socket) {
    if (security.tls != nullptr) {
      source_ = std::make_unique<CertificateSource>(*security.tls);
      const bool mutual = !security.tls->Get()->client_ca.empty();
      credentials_ = grpc_ssl_server_credentials_create_with_options(
          grpc_ssl_server_credentials_create_options_using_config_fetcher(
              mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                     : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
              &CertificateSource::Fetch, source_.get()));
    } else {
      credentials_ = grpc_local_server_credentials_create(unix_socket ? UDS : LOCAL_TCP);
    }
    if (security.authenticator == nullptr || !security.authenticator->needed()) return;
    grpc_auth_metadata_processor processor{};
    processor.process = &CheckCall;
    processor.destroy = [](void*) {};
    processor.state = const_cast<Authenticator*>(security.authenticator);
    grpc_server_credentials_set_auth_metadata_processor(credentials_, processor);
  }
  ~Credentials() override { grpc_server_credentials_release(credentials_); }

  // Calls are checked by the Authenticator that this was made with.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    std::abort();
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  std::unique_ptr<CertificateSource> source_;
  grpc_server_credentials* credentials_ = nullptr;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeCredentials(const PortSecurity& security,
                                                         bool unix_socket) {
  const bool checks = security.authenticator != nullptr && security.authenticator->needed();
  if (security.tls == nullptr && !checks) return grpc::InsecureServerCredentials();
  return std::make_shared<Credentials>(security, unix_socket);
}

CallFacts FactsOf(const grpc::ServerContext& context) {
  CallFacts call;
  const auto range = context.client_metadata().equal_range("authorization");
  for (auto it = range.first; it != range.second; ++it) {
    call.authorization.emplace_back(it->second.data(), it->second.size());
  }
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer == nullptr) return call;
  for (const char* property : {GRPC_X509_SAN_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    for (const grpc::string_ref& name : peer->FindPropertyValues(property)) {
      call.certificate_names.emplace_back(name.data(), name.size());
    }
    if (!call.certificate_names.empty()) break;
  }
  return call;
}

}  // namespace ulfd::server
