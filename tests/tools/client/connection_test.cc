// How a command reaches a server: flags that contradict each other, files that hold something else,
// and a token that nobody gets to see.
// SPDX-License-Identifier: Apache-2.0
#include "tools/client/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/testing/certificate.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

class ConnectionTest : public ::testing::Test {
 protected:
  absl::StatusOr<Connector> Create(const std::vector<std::string>& args) {
    FlagSet flags("test", "A test.");
    const ConnectionFlags connection(flags);
    const absl::Status status = flags.Parse(args, 0, 0).status();
    if (!status.ok()) return status;
    return Connector::Create(connection);
  }
  std::string UsageMessage(const std::vector<std::string>& args) {
    const absl::Status status = Create(args).status();
    EXPECT_TRUE(IsUsageError(status)) << status;
    return std::string(status.message());
  }
  std::string Error(const std::vector<std::string>& args) {
    const absl::Status status = Create(args).status();
    EXPECT_FALSE(status.ok() || IsUsageError(status)) << status;
    return std::string(status.message());
  }

  TempDir dir_;
};

TEST_F(ConnectionTest, MetadataAndTokenGoWithEveryCall) {
  const auto connector =
      Create({"--metadata=x-user=a=b,ulfd-priority=high",
              absl::StrCat("--token_file=", dir_.Write("token", "  s3cret-token\n"))});
  ASSERT_TRUE(connector.ok()) << connector.status();
  EXPECT_THAT(connector->metadata(),
              ElementsAre(Pair("x-user", "a=b"), Pair("ulfd-priority", "high"),
                          Pair("authorization", "Bearer s3cret-token")));
  EXPECT_THAT(Create({})->metadata(), IsEmpty());
}

TEST_F(ConnectionTest, MetadataThatGrpcWouldNotSend) {
  EXPECT_EQ(UsageMessage({"--metadata=key"}), "--metadata: \"key\", want KEY=VALUE");
  EXPECT_EQ(UsageMessage({"--metadata==v"}), "--metadata: \"=v\", want KEY=VALUE");
  for (const char* key : {"X-User", "a b", "grpc-timeout", "trace-bin"}) {
    EXPECT_THAT(UsageMessage({absl::StrCat("--metadata=", key, "=v")}),
                HasSubstr(absl::StrCat("key \"", key, "\", want lower case")));
  }
  EXPECT_EQ(UsageMessage({"--metadata=k=a\nb"}), "--metadata: k: want a value of printable ASCII");
}

TEST_F(ConnectionTest, TokensAreNeverSaid) {
  const std::string on_command_line = UsageMessage({"--metadata=Authorization=Bearer s3cret"});
  EXPECT_EQ(on_command_line, "--metadata: authorization: a token comes from --token_file");
  for (const char* content : {"shop s3cret-token", "s3cret\ns3cret", "", "\n", "s3cr\xc3\xa9t"}) {
    const std::string error = Error({absl::StrCat("--token_file=", dir_.Write("token", content))});
    EXPECT_THAT(error, HasSubstr("want one token of printable characters and nothing else"));
    EXPECT_THAT(error, Not(HasSubstr("s3c")));
  }
  EXPECT_THAT(Error({"--token_file=/nowhere/token"}),
              HasSubstr("--token_file: /nowhere/token: No such file"));
}

TEST_F(ConnectionTest, TlsFlagsThatContradictEachOther) {
  EXPECT_EQ(UsageMessage({"--notls", "--tls_server_name=a"}),
            "--tls_server_name and --notls contradict each other");
  EXPECT_EQ(UsageMessage({"--tls_cert=a"}), "--tls_cert and --tls_key want each other");
  EXPECT_EQ(UsageMessage({"--tls", "--tls_key=a"}), "--tls_cert and --tls_key want each other");
}

TEST_F(ConnectionTest, TlsFilesThatHoldSomethingElse) {
  for (const char* name : {"good", "other"}) MakeCertificate(dir_, name);
  EncryptKey(dir_, "good", "locked");
  const std::string certificate = dir_.File("good.crt"), key = dir_.File("good.key");
  const auto error_of_pair = [&](const std::string& crt, const std::string& of_crt) {
    const std::string error = Error({"--tls_cert=" + crt, "--tls_key=" + of_crt});
    EXPECT_THAT(error, StartsWith("--tls_cert and --tls_key: " + dir_.path()));
    return error;
  };
  EXPECT_TRUE(
      Create({"--tls_ca=" + certificate, "--tls_cert=" + certificate, "--tls_key=" + key}).ok());
  EXPECT_EQ(Error({"--tls_ca=/nowhere/ca"}), "--tls_ca: /nowhere/ca: No such file or directory");
  EXPECT_EQ(Error({"--tls_ca=" + key}),
            absl::StrCat("--tls_ca: ", key, ": holds no PEM certificate"));
  EXPECT_THAT(error_of_pair(key, key), HasSubstr("good.key: holds no PEM certificate"));
  EXPECT_THAT(error_of_pair(certificate, certificate),
              HasSubstr("good.crt: holds no PEM private key"));
  EXPECT_THAT(error_of_pair(certificate, dir_.File("locked.key")),
              HasSubstr("locked.key: the private key is encrypted"));
  EXPECT_THAT(error_of_pair(certificate, dir_.File("other.key")),
              HasSubstr("other.key: the private key does not belong to the certificate of "
                        "\"CN=good\" in " +
                        certificate));
}

}  // namespace
}  // namespace ulfd::tools
