// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/listener_security.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text_file.h"
#include "server/config/options.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;

absl::StatusOr<std::unique_ptr<Reloaded<TlsMaterial>>> Watched(const char* name,
                                                               const TlsOptions& options) {
  if (!options.on()) return nullptr;
  return Annotate(
      Reloaded<TlsMaterial>::Create([options] { return ReadTlsMaterial(options, absl::Now()); }),
      name);
}

absl::StatusOr<TokenTable> ReadTokens(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return TokenTable::Parse(text, path);
}

void LogNew(Logger& logger, const char* what, const TlsMaterial& material) {
  logger.Info(
      "certificate loaded",
      {{"port", what},
       {"subject", material.subject},
       {"expires", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", material.expires, absl::UTCTimeZone())}});
}

void LogNew(Logger& logger, const char*, const TokenTable& tokens) {
  logger.Info("tokens loaded", {{"tokens", static_cast<int64_t>(tokens.size())}});
}

}  // namespace

Security::Security(const ServerConfig& settings, Logger& logger)
    : grpc_tls_options_(TlsOptionsOf(settings.tls())),
      admin_tls_options_(TlsOptionsOf(settings.admin_tls())),
      authentication_(AuthenticationOptionsOf(settings.authentication())),
      clients_have_names_(!authentication_.token_file.empty() ||
                          !grpc_tls_options_.client_ca_file.empty()),
      logger_(logger) {}

absl::StatusOr<std::unique_ptr<Security>> Security::Create(const ServerConfig& settings,
                                                           Logger& logger) {
  auto security = std::unique_ptr<Security>(new Security(settings, logger));
  RETURN_IF_ERROR(security->ReadAll());
  if (security->grpc_tls_ != nullptr || security->admin_tls_ != nullptr ||
      security->tokens_ != nullptr) {
    security->thread_ = std::thread([s = security.get()] { s->Loop(); });
  }
  return security;
}

absl::Status Security::ReadAll() {
  ASSIGN_OR_RETURN(grpc_tls_, Watched("tls", grpc_tls_options_));
  ASSIGN_OR_RETURN(admin_tls_, Watched("admin_tls", admin_tls_options_));
  if (!authentication_.token_file.empty()) {
    auto tokens = Reloaded<TokenTable>::Create(
        [path = authentication_.token_file] { return ReadTokens(path); });
    if (!tokens.ok()) {
      return absl::Status(tokens.status().code(),
                          absl::StrCat("authentication.token_file: ", tokens.status().message()));
    }
    tokens_ = *std::move(tokens);
  }
  if (grpc_tls_ != nullptr) LogNew(logger_, "grpc", *grpc_tls_->Get());
  if (admin_tls_ != nullptr) LogNew(logger_, "admin", *admin_tls_->Get());
  if (tokens_ != nullptr) LogNew(logger_, "", *tokens_->Get());
  std::vector<std::string> open;
  if (authentication_.open_health) open.emplace_back("/grpc.health.v1.Health/");
  grpc_callers_ = std::make_unique<Authenticator>(tokens_.get(), std::move(open), std::nullopt);
  const std::vector<std::string>& admins = authentication_.admin_clients;
  // Without a list, the admin port is as open as it is without tokens.
  admin_callers_ = std::make_unique<Authenticator>(
      admins.empty() ? nullptr : tokens_.get(), std::vector<std::string>(),
      admins.empty() ? std::nullopt : std::make_optional(ClientList(admins)));
  return absl::OkStatus();
}

Security::~Security() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

template <typename T>
void Security::LookAt(const char* what, Reloaded<T>* value) {
  if (value == nullptr) return;
  const auto outcome = value->Look();
  if (outcome.change == Reloaded<T>::Change::kNew) LogNew(logger_, what, *value->Get());
  if (outcome.change == Reloaded<T>::Change::kBroken) {
    logger_.Error("the files on disk are no good: what was read before stays in use",
                  {{"of", what}, {"error", std::string(outcome.error.message())}});
  }
}

void Security::Loop() {
  struct Item {
    milliseconds interval;
    std::function<void()> look;
    std::chrono::steady_clock::time_point next;
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<Item> items;
  const auto add = [&](bool wanted, milliseconds interval, std::function<void()> look) {
    if (wanted) items.push_back({interval, std::move(look), start + interval});
  };
  add(grpc_tls_ != nullptr, grpc_tls_options_.reload_interval,
      [this] { LookAt("grpc", grpc_tls_.get()); });
  add(admin_tls_ != nullptr, admin_tls_options_.reload_interval,
      [this] { LookAt("admin", admin_tls_.get()); });
  add(tokens_ != nullptr, authentication_.reload_interval,
      [this] { LookAt("tokens", tokens_.get()); });
  while (true) {
    auto next = items[0].next;
    for (const Item& item : items) next = std::min(next, item.next);
    {
      MutexLock lock(mu_);
      while (!stopping_ && std::chrono::steady_clock::now() < next) changed_.WaitUntil(mu_, next);
      if (stopping_) return;
    }
    const auto now = std::chrono::steady_clock::now();
    for (Item& item : items) {
      if (item.next > now) continue;
      item.look();
      item.next = now + item.interval;
    }
  }
}

std::optional<std::vector<std::string>> Security::ClientOf(const grpc::ServerContext& call) const {
  if (!clients_have_names_) return std::nullopt;
  return grpc_callers_->NamesOf(FactsOf(call));
}

absl::StatusOr<std::optional<std::vector<std::string>>> Security::ClientOfHttp(
    absl::string_view path, absl::string_view authorization, bool from_here) const {
  CallFacts facts{.path = path};
  if (!authorization.empty()) facts.authorization.push_back(authorization);
  if (tokens_ != nullptr && !from_here) {
    return absl::PermissionDeniedError(
        "tokens are taken over HTTP, which is plain text, from this machine only");
  }
  RETURN_IF_ERROR(grpc_callers_->Check(facts));
  if (!clients_have_names_) return std::optional<std::vector<std::string>>();
  return std::make_optional(grpc_callers_->NamesOf(facts));
}

absl::StatusOr<ModelChoice> Security::Identify(const grpc::ServerContext& call,
                                               absl::StatusOr<ModelChoice> choice) const {
  if (choice.ok()) choice->client = ClientOf(call);
  return choice;
}

std::vector<std::string> Security::WithoutToken(
    const google::protobuf::RepeatedPtrField<std::string>& clients) const {
  std::vector<std::string> without;
  for (const std::string& client : clients) {
    if (tokens_ != nullptr && client != "*" && !tokens_->Get()->Knows(client)) {
      without.push_back(client);
    }
  }
  return without;
}

void Security::Collect(MetricPage& page) const {
  const auto add = [&](const char* of, const auto* value) {
    if (value == nullptr) return;
    page.AddCounter("ulfd_security_reloads_total",
                    "Times that changed certificates or tokens were taken into use",
                    value->reloads(), {{"of", of}});
    page.AddCounter("ulfd_security_reload_failures_total",
                    "Times that certificates or tokens on disk turned out to be no good",
                    value->failures(), {{"of", of}});
    page.AddGauge("ulfd_security_stale",
                  "1 while the files on disk are no good and older ones are in use",
                  value->broken() ? 1 : 0, {{"of", of}});
  };
  const auto add_tls = [&](const char* port, const Reloaded<TlsMaterial>* tls) {
    if (tls == nullptr) return;
    page.AddGauge("ulfd_tls_certificate_expiry_seconds",
                  "Unix time at which the certificate in use, or one of its chain, expires",
                  absl::ToUnixSeconds(tls->Get()->expires), {{"port", port}});
    add(port, tls);
  };
  add_tls("grpc", grpc_tls_.get());
  add_tls("admin", admin_tls_.get());
  add("tokens", tokens_.get());
  const auto count = [&](const char* port, const char* why, int64_t calls) {
    page.AddCounter("ulfd_unauthenticated_total",
                    "Calls refused before they were read: no token that is known "
                    "(unauthenticated), or a client who may not call that port (denied)",
                    calls, {{"port", port}, {"why", why}});
  };
  for (const auto& [port, callers] :
       {std::pair("grpc", grpc_callers_.get()), std::pair("admin", admin_callers_.get())}) {
    if (!callers->needed()) continue;
    count(port, "unauthenticated", callers->unauthenticated());
    count(port, "denied", callers->denied());
  }
}

}  // namespace ulfd::server
