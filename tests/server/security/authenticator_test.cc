// Who may call, and what it takes to be told so.
// SPDX-License-Identifier: Apache-2.0
#include "server/security/authenticator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/security/access_rules.h"

namespace ulfd::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class AuthenticatorTest : public ::testing::Test {
 protected:
  AuthenticatorTest() {
    tokens_ = *Reloaded<TokenTable>::Create([this] { return TokenTable::Parse(file_, "tokens"); });
  }
  static CallFacts Call(std::vector<absl::string_view> authorization,
                        std::vector<std::string> certificate = {}) {
    return {.path = "/ulfd.v1.PredictionService/Predict",
            .authorization = std::move(authorization),
            .certificate_names = std::move(certificate)};
  }
  std::string file_ = "shop token-of-the-shop\nlab token-of-the-lab\n";
  std::unique_ptr<Reloaded<TokenTable>> tokens_;
};

TEST_F(AuthenticatorTest, WantsOneKnownToken) {
  const Authenticator port(tokens_.get(), {}, std::nullopt);
  EXPECT_TRUE(port.needed());
  EXPECT_EQ(port.Check(Call({"Bearer token-of-the-shop"})), absl::OkStatus());
  EXPECT_EQ(port.Check(Call({"bearer token-of-the-lab"})), absl::OkStatus());
  EXPECT_EQ(port.Check(Call({})),
            absl::UnauthenticatedError("0 authorization headers, want one: \"authorization: Bearer "
                                       "TOKEN\""));
  EXPECT_EQ(port.Check(Call({"Bearer token-of-the-shop", "Bearer token-of-the-lab"})),
            absl::UnauthenticatedError("2 authorization headers, want one: \"authorization: Bearer "
                                       "TOKEN\""));
  EXPECT_EQ(port.Check(Call({"Basic dG9rZW4="})),
            absl::UnauthenticatedError(
                "authorization: another scheme, want \"authorization: Bearer TOKEN\""));
  for (const char* wrong : {"Bearer ", "Bearer token-of-the-sho", "Bearer  token-of-the-shop"}) {
    EXPECT_EQ(port.Check(Call({wrong})), absl::UnauthenticatedError("authorization: unknown token"))
        << wrong;
  }
  EXPECT_EQ(port.unauthenticated(), 6);
  EXPECT_EQ(port.denied(), 0);
}

TEST_F(AuthenticatorTest, NamesAreThoseOfTheTokenOrOfTheCertificate) {
  const Authenticator with_tokens(tokens_.get(), {}, std::nullopt);
  EXPECT_THAT(with_tokens.NamesOf(Call({"Bearer token-of-the-shop"}, {"pod-7"})),
              ElementsAre("shop"));
  EXPECT_THAT(with_tokens.NamesOf(Call({}, {"pod-7"})), IsEmpty());
  const Authenticator without(nullptr, {}, std::nullopt);
  EXPECT_FALSE(without.needed());
  EXPECT_THAT(without.NamesOf(Call({"Bearer token-of-the-shop"}, {"pod-7", "pod-8"})),
              ElementsAre("pod-7", "pod-8"));
}

TEST_F(AuthenticatorTest, SomePathsAreOpen) {
  const Authenticator port(tokens_.get(), {"/grpc.health.v1.Health/"}, std::nullopt);
  CallFacts call = Call({});
  call.path = "/grpc.health.v1.Health/Watch";
  EXPECT_TRUE(port.Check(call).ok());
  call.path = "/grpc.health.v1.Healthy/Watch";
  EXPECT_TRUE(absl::IsUnauthenticated(port.Check(call)));
}

TEST_F(AuthenticatorTest, APortMayBeForSomeOnly) {
  const Authenticator port(tokens_.get(), {}, ClientList({"lab"}));
  EXPECT_TRUE(port.Check(Call({"Bearer token-of-the-lab"})).ok());
  EXPECT_EQ(port.Check(Call({"Bearer token-of-the-shop"})),
            absl::PermissionDeniedError("client \"shop\" may not call this port"));
  const Authenticator by_certificate(nullptr, {}, ClientList({"lab"}));
  EXPECT_TRUE(by_certificate.needed());
  EXPECT_TRUE(by_certificate.Check(Call({}, {"x", "lab"})).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(by_certificate.Check(Call({}, {"x"}))));
  EXPECT_TRUE(absl::IsPermissionDenied(by_certificate.Check(Call({}))));
  EXPECT_EQ(by_certificate.denied(), 2);
}

TEST_F(AuthenticatorTest, ABrokenFileLeavesTheTokensThatWere) {
  const Authenticator port(tokens_.get(), {}, std::nullopt);
  using Change = Reloaded<TokenTable>::Change;
  EXPECT_EQ(tokens_->Look().change, Change::kNone);
  file_ = "shop short";
  const auto outcome = tokens_->Look();
  EXPECT_EQ(outcome.change, Change::kBroken);
  EXPECT_EQ(outcome.error.message(), "tokens:1: a token of 5 characters, want at least 16");
  EXPECT_TRUE(tokens_->broken());
  EXPECT_EQ(tokens_->Look().change, Change::kNone) << "told once";
  EXPECT_TRUE(port.Check(Call({"Bearer token-of-the-shop"})).ok());
  file_ = "shop next-token-of-the-shop";
  EXPECT_EQ(tokens_->Look().change, Change::kNew);
  EXPECT_FALSE(tokens_->broken());
  EXPECT_EQ(tokens_->reloads(), 1);
  EXPECT_EQ(tokens_->failures(), 1);
  EXPECT_FALSE(port.Check(Call({"Bearer token-of-the-shop"})).ok());
  EXPECT_TRUE(port.Check(Call({"Bearer next-token-of-the-shop"})).ok());
}

TEST(AccessRules, PerModelAndTheRest) {
  const AccessRules rules({"shop"}, {{"secret", {"lab"}}, {"open", {"*"}}});
  using Names = std::vector<std::string>;
  EXPECT_TRUE(rules.MayUse(Names{"shop"}, "rank"));
  EXPECT_FALSE(rules.MayUse(Names{"shop"}, "secret"));
  EXPECT_TRUE(rules.MayUse(Names{"x", "lab"}, "secret"));
  EXPECT_TRUE(rules.MayUse(Names{"x"}, "open"));
  EXPECT_FALSE(rules.MayUse(Names{}, "rank"));
  EXPECT_EQ(rules.Check(Names{"a", "b"}, "secret"),
            absl::PermissionDeniedError("client \"a\", \"b\" may not use model \"secret\""));
  EXPECT_TRUE(AccessRules().MayUse(Names{}, "rank"));
}

}  // namespace
}  // namespace ulfd::server
