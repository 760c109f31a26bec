// CivetWeb behind our interface; its exceptions stop here.
// SPDX-License-Identifier: Apache-2.0
#include "server/http_server.h"

#include <CivetServer.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ulfd::server {

class HttpServer::Handler final : public CivetHandler {
 public:
  Handler(std::string path, Page page) : path_(std::move(path)), page_(std::move(page)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    return Reply(connection, /*with_body=*/true);
  }
  bool handleHead(CivetServer*, mg_connection* connection) override {
    return Reply(connection, /*with_body=*/false);
  }

 private:
  bool Reply(mg_connection* connection, bool with_body) const {
    // CivetWeb also hands over what lies below the path.
    const char* uri = mg_get_request_info(connection)->local_uri;
    const HttpReply reply =
        uri != nullptr && path_ == uri ? page_() : HttpReply{404, "text/plain", "no such page\n"};
    const std::string head = absl::StrCat(
        "HTTP/1.1 ", reply.code, " ", mg_get_response_code_text(connection, reply.code),
        "\r\nContent-Type: ", reply.content_type, "\r\nContent-Length: ", reply.body.size(),
        "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n");
    mg_write(connection, head.data(), head.size());
    if (with_body) mg_write(connection, reply.body.data(), reply.body.size());
    return true;
  }

  const std::string path_;
  const Page page_;
};

HttpServer::HttpServer() = default;
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(const std::string& address, int port,
                                                               std::map<std::string, Page> pages) {
  auto http = std::unique_ptr<HttpServer>(new HttpServer());
  const std::vector<std::string> options = {
      "listening_ports",    absl::StrCat(address, ":", port),
      "num_threads",        "4",
      "request_timeout_ms", "5000",
      "enable_keep_alive",  "no",
  };
  try {
    http->server_ = std::make_unique<CivetServer>(options);
  } catch (const CivetException&) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ":", port,
                                               " for HTTP: ", WhyNotListening(address, port)));
  }
  for (auto& [path, page] : pages) {
    auto& handler = http->handlers_[path];
    handler = std::make_unique<Handler>(path, std::move(page));
    http->server_->addHandler(path, handler.get());
  }
  const std::vector<int> ports = http->server_->getListeningPorts();
  if (ports.empty()) return absl::InternalError("the HTTP server listens on no port");
  http->port_ = ports[0];
  return http;
}

std::string WhyNotListening(const std::string& address, int port) {
  absl::string_view host = address;
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(std::string(host).c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) return absl::StrCat("not an IP address: ", gai_strerror(error));
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool ok = bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0;
  const std::string why = ok ? "unknown reason" : std::strerror(errno);
  close(fd);
  freeaddrinfo(found);
  return why;
}

}  // namespace ulfd::server
