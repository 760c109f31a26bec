// The HTTP port: a few pages for probes, scrapers and people.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_HTTP_SERVER_H_
#define ULFD_SERVER_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

class CivetServer;

namespace ulfd::server {

struct HttpReply {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// GET and HEAD of fixed paths; every other path is 404.  Serves on threads of its own.
class HttpServer {
 public:
  // Called on any of the server's threads, several at a time.
  using Page = std::function<HttpReply()>;

  // Listens; port 0: any free one.  UNAVAILABLE: the address cannot be listened on (says why).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(const std::string& address, int port,
                                                            std::map<std::string, Page> pages);
  // Waits for pages that are being made.
  ~HttpServer();

  int port() const { return port_; }

 private:
  class Handler;
  HttpServer();
  std::map<std::string, std::unique_ptr<Handler>> handlers_;
  std::unique_ptr<CivetServer> server_;  // Last: it calls the handlers.
  int port_ = 0;
};

// Why `address`:`port` cannot be listened on, as far as trying tells ("Address already in use").
std::string WhyNotListening(const std::string& address, int port);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_HTTP_SERVER_H_
