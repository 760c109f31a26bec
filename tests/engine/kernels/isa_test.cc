// The choice of an instruction set.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/isa.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ulfd::engine {
namespace {

TEST(Isa, EveryMachineHasThePortableOne) {
  const std::vector<Isa> isas = SupportedIsas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::kPortable);
  for (size_t i = 1; i < isas.size(); ++i) EXPECT_LT(isas[i - 1], isas[i]);
}

TEST(Isa, NothingSetMeansTheBest) {
  for (const char* unset : {static_cast<const char*>(nullptr), ""}) {
    const absl::StatusOr<Isa> isa = ChooseIsa(unset);
    ASSERT_TRUE(isa.ok());
    EXPECT_EQ(*isa, SupportedIsas().back());
  }
}

TEST(Isa, EverySupportedOneCanBeNamed) {
  for (const Isa isa : SupportedIsas()) {
    const absl::StatusOr<Isa> chosen = ChooseIsa(std::string(Name(isa)).c_str());
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(*chosen, isa);
  }
}

TEST(Isa, WhatIsUnknownOrMissingHereIsRefusedByName) {
  for (const char* wrong : {"avx3", "AVX2", " avx2", "neon"}) {
    const std::vector<Isa> isas = SupportedIsas();
    if (wrong == Name(isas.back())) continue;
    const absl::Status status = ChooseIsa(wrong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                ::testing::AllOf(::testing::HasSubstr("ULFD_ISA"), ::testing::HasSubstr(wrong),
                                 ::testing::HasSubstr("want one of portable")));
  }
}

TEST(Isa, TheEnvironmentIsReadOnce) {
  const absl::StatusOr<Isa> first = IsaOfEnvironment();
  ASSERT_EQ(setenv("ULFD_ISA", "no such thing", 1), 0);
  EXPECT_EQ(IsaOfEnvironment().status(), first.status());
  EXPECT_EQ(ActiveIsa(), first.ok() ? *first : SupportedIsas().back());
}

}  // namespace
}  // namespace ulfd::engine
