// The base of tests that write model directories and run the models with one thread.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_MODEL_DIRECTORIES_H_
#define ULFD_TESTS_TESTING_MODEL_DIRECTORIES_H_

#include <string>

#include "engine/tensor/onednn.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::testing {

class ModelDirectories : public ::testing::Test {
 protected:
  ModelDirectories() { engine::UseOneThread(); }

  const TempDir temp_;
  const std::string& base_ = temp_.path();
};

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_MODEL_DIRECTORIES_H_
