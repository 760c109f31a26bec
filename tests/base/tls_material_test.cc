// Certificates: what is accepted, and what an operator is told otherwise.
// SPDX-License-Identifier: Apache-2.0
#include "base/tls/tls_material.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/testing/certificate.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::server {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class TlsMaterialTest : public ::testing::Test {
 protected:
  void Make(const std::string& name, const std::string& more = "") {
    MakeCertificate(dir_, name, more);
  }
  TlsOptions Options(const std::string& certificate, const std::string& key,
                     const std::string& ca = "") {
    TlsOptions options;
    options.certificate_file = dir_.File(certificate);
    options.key_file = dir_.File(key);
    if (!ca.empty()) options.client_ca_file = dir_.File(ca);
    return options;
  }
  std::string Error(const TlsOptions& options, absl::Time now = absl::Now()) {
    const auto material = ReadTlsMaterial(options, now);
    EXPECT_FALSE(material.ok());
    return std::string(material.status().message());
  }
  std::string Text(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(dir_.File(name)).rdbuf();
    return text.str();
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_.File(name)) << text;
  }
  TempDir dir_;
};

TEST_F(TlsMaterialTest, ReadsACertificateAndItsKey) {
  Make("server");
  Make("clients");
  const auto plain = ReadTlsMaterial(Options("server.crt", "server.key"), absl::Now());
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->subject, "CN=server");
  EXPECT_EQ(plain->certificate_chain, Text("server.crt"));
  EXPECT_EQ(plain->private_key, Text("server.key"));
  EXPECT_EQ(plain->client_ca, "");
  EXPECT_GT(plain->expires, absl::Now() + absl::Hours(29 * 24));
  EXPECT_LT(plain->expires, absl::Now() + absl::Hours(31 * 24));
  const auto mutual =
      ReadTlsMaterial(Options("server.crt", "server.key", "clients.crt"), absl::Now());
  ASSERT_TRUE(mutual.ok()) << mutual.status();
  EXPECT_EQ(mutual->client_ca, Text("clients.crt"));
  EXPECT_FALSE(*mutual == *plain);
}

// OpenSSL's clients would refuse each handshake.
TEST_F(TlsMaterialTest, RefusesAChainThatNoClientTakes) {
  Make("server");
  std::string chain;
  const std::string one = Text("server.crt");
  for (int i = 0; i < 100; ++i) chain += one;
  Write("long.crt", chain);
  EXPECT_TRUE(ReadTlsMaterial(Options("long.crt", "server.key"), absl::Now()).ok());
  while (chain.size() < 200 << 10) chain += one;
  Write("long.crt", chain);
  EXPECT_THAT(Error(Options("long.crt", "server.key")),
              MatchesRegex(".*long.crt: a chain of [0-9]+ bytes, clients take at most 102400"));
  Write("many.ca", chain);  // These are not sent.
  EXPECT_TRUE(ReadTlsMaterial(Options("server.crt", "server.key", "many.ca"), absl::Now()).ok());
}

TEST_F(TlsMaterialTest, FilesThatAreNotThereOrNoPem) {
  Make("server");
  EXPECT_EQ(Error(Options("none.crt", "server.key")),
            dir_.File("none.crt") + ": No such file or directory");
  EXPECT_EQ(Error(Options("server.crt", "none.key")),
            dir_.File("none.key") + ": No such file or directory");
  EXPECT_EQ(Error(Options("server.crt", "server.key", "none.ca")),
            dir_.File("none.ca") + ": No such file or directory");
  EXPECT_EQ(Error(Options("server.key", "server.key")),
            dir_.File("server.key") + ": holds no PEM certificate");
  EXPECT_EQ(Error(Options("server.crt", "server.crt")),
            dir_.File("server.crt") + ": holds no PEM private key");
  Write("empty", "");
  EXPECT_EQ(Error(Options("empty", "server.key")),
            dir_.File("empty") + ": holds no PEM certificate");
  EXPECT_EQ(Error(Options("server.crt", "server.key", "empty")),
            dir_.File("empty") + ": holds no PEM certificate");
  EXPECT_EQ(Error(Options("server.crt", ".")), dir_.File(".") + ": is not a regular file");
  Write("large", std::string((size_t{1} << 20) + 1, 'x'));
  EXPECT_EQ(Error(Options("large", "server.key")),
            dir_.File("large") + ": larger than 1048576 bytes");
  std::string half = Text("server.crt");
  half.replace(half.size() / 2, 4, "!!!!");
  Write("half.crt", half);
  EXPECT_EQ(Error(Options("half.crt", "server.key")),
            dir_.File("half.crt") + ": certificate 1 is broken");
  Write("chain.crt", Text("server.crt") + half);
  EXPECT_EQ(Error(Options("chain.crt", "server.key")),
            dir_.File("chain.crt") + ": certificate 2 is broken");
}

TEST_F(TlsMaterialTest, AKeyOfAnotherCertificate) {
  Make("server");
  Make("other");
  const std::string error = Error(Options("server.crt", "other.key"));
  EXPECT_EQ(error, absl::StrCat(dir_.File("other.key"),
                                ": the private key does not belong to the certificate of "
                                "\"CN=server\" in ",
                                dir_.File("server.crt")));
  EXPECT_THAT(error, Not(HasSubstr(Text("other.key").substr(40, 20))));
}

TEST_F(TlsMaterialTest, AKeyThatIsEncrypted) {
  Make("server");
  EncryptKey(dir_, "server", "locked");
  EXPECT_EQ(
      Error(Options("server.crt", "locked.key")),
      dir_.File("locked.key") + ": the private key is encrypted, want one without passphrase");
}

TEST_F(TlsMaterialTest, TimeOutsideTheValidity) {
  Make("server");
  Make("clients");
  const TlsOptions options = Options("server.crt", "server.key", "clients.crt");
  const absl::Time late = absl::Now() + absl::Hours(24 * 31), early = absl::Now() - absl::Hours(24);
  EXPECT_THAT(Error(options, late),
              MatchesRegex(dir_.File("server.crt") +
                           ": the certificate of \"CN=server\" expired at [-0-9T:]*Z"));
  EXPECT_THAT(Error(options, early),
              MatchesRegex(dir_.File("server.crt") +
                           ": the certificate of \"CN=server\" is valid from [-0-9T:]*Z on"));
  // Who looks every second tells what is new only.
  EXPECT_EQ(Error(options, late), Error(options, late + absl::Seconds(1)));
  EXPECT_EQ(Error(options, early), Error(options, early - absl::Seconds(1)));
}

TEST_F(TlsMaterialTest, OldIssuersMayStayInABundle) {
  // `old` ends after a day, the others after thirty.
  Make("server");
  Make("clients");
  Make("old", "-days 1");
  const absl::Time later = absl::Now() + absl::Hours(48);
  Write("bundle.crt", Text("old.crt") + Text("clients.crt"));
  EXPECT_TRUE(ReadTlsMaterial(Options("server.crt", "server.key", "bundle.crt"), later).ok());
  EXPECT_THAT(Error(Options("server.crt", "server.key", "old.crt"), later),
              HasSubstr("\"CN=old\" expired"));
  // A chain is as old as its oldest link.
  Write("chain.crt", Text("server.crt") + Text("old.crt"));
  EXPECT_THAT(Error(Options("chain.crt", "server.key"), later), HasSubstr("\"CN=old\" expired"));
  const auto chain = ReadTlsMaterial(Options("chain.crt", "server.key"), absl::Now());
  ASSERT_TRUE(chain.ok());
  EXPECT_LT(chain->expires, later);
}

}  // namespace
}  // namespace ulfd::server
