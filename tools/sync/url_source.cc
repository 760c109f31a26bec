// Web servers with index pages, and object stores.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "tools/cli/url_client.h"
#include "tools/sync/listing.h"
#include "tools/sync/source.h"

namespace ulfd::tools {
namespace {

constexpr int kMaxPages = 1000;  // Of a listing; a store that gets on puts 1000 entries on each.

// A store wants it stated, and libcurl 7.88 does not; requests here have no body.
constexpr char kSha256OfNothing[] =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

class WebSource final : public Source {
 public:
  WebSource(std::string root, UrlOptions options)
      : root_(std::move(root)), client_(std::move(options)) {}

  absl::StatusOr<std::vector<RemoteEntry>> List(const std::string& directory) override {
    const std::string url = absl::StrCat(Url(directory), directory.empty() ? "" : "/");
    ASSIGN_OR_RETURN(const std::string page, client_.Page(url));
    return Annotate(ParseIndexPage(page), url);
  }

  absl::Status Describe(const std::string& path, RemoteEntry& file) override {
    ASSIGN_OR_RETURN(const UrlAnswer answer, client_.Head(Url(path)));
    if (answer.bytes < 0) {
      return FailedPrecondition(Url(path), ": the server does not say how long it is");
    }
    file.bytes = answer.bytes;
    file.tag = answer.tag;
    return absl::OkStatus();
  }

  absl::Status Read(const std::string& path, const RemoteEntry& file, int64_t offset,
                    ByteSink sink) override {
    return client_.Get(Url(path), offset, file.tag, sink);
  }

 private:
  std::string Url(const std::string& path) const { return absl::StrCat(root_, EncodePath(path)); }

  const std::string root_;  // Ends with a slash.
  UrlClient client_;
};

class ObjectSource final : public Source {
 public:
  // `bucket`: URL without a slash at its end; `prefix`: "" or with one.
  ObjectSource(std::string bucket, std::string prefix, UrlOptions options)
      : bucket_(std::move(bucket)), prefix_(std::move(prefix)), client_(std::move(options)) {}

  absl::StatusOr<std::vector<RemoteEntry>> List(const std::string& directory) override {
    const std::string prefix = absl::StrCat(prefix_, directory, directory.empty() ? "" : "/");
    std::vector<RemoteEntry> entries;
    std::string token;
    int pages = 0;
    do {
      // Sorted, as the signature wants it.
      const std::string url = absl::StrCat(
          bucket_, "?",
          token.empty() ? "" : absl::StrCat("continuation-token=", EncodeQuery(token), "&"),
          "delimiter=%2F&list-type=2",
          prefix.empty() ? "" : absl::StrCat("&prefix=", EncodeQuery(prefix)));
      ASSIGN_OR_RETURN(const std::string text, client_.Page(url));
      ASSIGN_OR_RETURN(ObjectPage page, Annotate(ParseObjectPage(text, prefix), url));
      if (!page.next.empty() && (page.entries.empty() || page.next == token)) {
        return FailedPrecondition(url, ": the listing does not get on");
      }
      token = std::move(page.next);
      for (RemoteEntry& entry : page.entries) entries.push_back(std::move(entry));
      if (entries.size() > kMaxListed || ++pages > kMaxPages) {
        return OutOfRange(url, ": more than ", kMaxListed, " entries or ", kMaxPages, " pages");
      }
    } while (!token.empty());
    if (entries.empty()) {
      return NotFound(bucket_, ": nothing begins with ", Quote(prefix));
    }
    return entries;
  }

  absl::Status Describe(const std::string&, RemoteEntry&) override { return absl::OkStatus(); }

  absl::Status Read(const std::string& path, const RemoteEntry& file, int64_t offset,
                    ByteSink sink) override {
    return client_.Get(absl::StrCat(bucket_, "/", EncodePath(absl::StrCat(prefix_, path))), offset,
                       file.tag, sink);
  }

 private:
  const std::string bucket_, prefix_;
  UrlClient client_;
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::unique_ptr<Source> MakeWebSource(absl::string_view url, UrlOptions options) {
  absl::ConsumeSuffix(&url, "/");
  return std::make_unique<WebSource>(absl::StrCat(url, "/"), std::move(options));
}

absl::StatusOr<std::unique_ptr<Source>> MakeObjectSource(absl::string_view bucket_and_prefix,
                                                         const SourceOptions& from,
                                                         UrlOptions options) {
  const size_t slash = bucket_and_prefix.find('/');
  const absl::string_view bucket = bucket_and_prefix.substr(0, slash);
  std::string prefix(slash == absl::string_view::npos ? "" : bucket_and_prefix.substr(slash + 1));
  if (!prefix.empty() && prefix.back() != '/') prefix.push_back('/');
  if (absl::Status status = CheckName(bucket); !status.ok()) return Annotate(status, "bucket");
  options.key = Environment("AWS_ACCESS_KEY_ID");
  options.secret = Environment("AWS_SECRET_ACCESS_KEY");
  if (options.key.empty() != options.secret.empty()) {
    return InvalidArgument(
        "one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set, want both or neither");
  }
  if (!options.key.empty()) {
    options.sigv4 = absl::StrCat("aws:amz:", from.region, ":s3");
    options.headers.push_back(absl::StrCat("x-amz-content-sha256: ", kSha256OfNothing));
  }
  if (const std::string session = Environment("AWS_SESSION_TOKEN"); !session.empty()) {
    options.headers.push_back(absl::StrCat("x-amz-security-token: ", session));
  }
  absl::string_view endpoint = from.endpoint;
  absl::ConsumeSuffix(&endpoint, "/");
  const std::string host = endpoint.empty()
                               ? absl::StrCat("https://s3.", from.region, ".amazonaws.com")
                               : std::string(endpoint);
  return std::make_unique<ObjectSource>(absl::StrCat(host, "/", EncodePath(bucket)),
                                        std::move(prefix), std::move(options));
}

}  // namespace ulfd::tools
