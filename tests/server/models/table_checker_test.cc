// Table files that are damaged while they serve, and read aside.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/table_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/embedding/table_file_writer.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_model.h"

namespace ulfd::server {
namespace {

using ::testing::HasSubstr;

class TableCheckerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::WriteTinyModel(dir_.File("m/1"));
    engine::TableFileWriter writer(table_, {});
    ASSERT_TRUE(writer.Begin(2, 0).ok());
    for (const int64_t id : {10, 11, 12}) {
      const auto row = writer.NextRow();
      ASSERT_TRUE(row.ok()) << row.status();
      (*row)[0] = (*row)[1] = 1;
      ASSERT_TRUE(writer.Commit(id).ok());
    }
    ASSERT_TRUE(writer.Finish().ok());
  }
  ServedModel Load() const {
    auto model = engine::Model::Load({.directory = dir_.File("m/1")});
    EXPECT_TRUE(model.ok()) << model.status();
    ServedModel served;
    served.name = "m";
    served.version = 1;
    if (model.ok()) served.model = *std::move(model);
    return served;
  }
  // In place, under the mapping.
  void Damage() const {
    std::fstream file(table_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file.put(77);
    ASSERT_TRUE(file.good());
  }
  std::unique_ptr<TableChecker> MakeChecker(uint64_t checked_bytes) {
    return std::make_unique<TableChecker>(
        [this](const std::string& name, int64_t version, const absl::Status& damage) {
          MutexLock lock(mu_);
          reports_.push_back(name + " v" + std::to_string(version) + " " + damage.ToString());
          changed_.NotifyAll();
        },
        checked_bytes);
  }
  std::string WaitForReport() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    MutexLock lock(mu_);
    while (reports_.empty() && changed_.WaitUntil(mu_, end)) {
    }
    return reports_.empty() ? "none" : reports_[0];
  }
  size_t reports() {
    MutexLock lock(mu_);
    return reports_.size();
  }

  TempDir dir_;
  const std::string table_ = dir_.File("m/1/mid_table");
  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> reports_ ABSL_GUARDED_BY(mu_);
};

TEST_F(TableCheckerTest, TellsDamageOnce) {
  const auto checker = MakeChecker(0);
  const ServedModel model = Load();
  ASSERT_NE(model.model, nullptr);
  Damage();
  checker->Offer(model);
  const std::string report = WaitForReport();
  EXPECT_THAT(report,
              HasSubstr("m v1 DATA_LOSS: table \"mid_table\": " + table_ + ": bytes 0 to "));
  EXPECT_THAT(report, HasSubstr(" are damaged"));
  EXPECT_FALSE(engine::Model::Load({.directory = dir_.File("m/1")}).ok());
  // The rows are known; those of a file that is opened anew are others, and come behind them.
  checker->Offer(model);
  SetUp();
  const ServedModel again = Load();
  Damage();
  checker->Offer(again);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (reports() < 2 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(reports(), 2u);
  EXPECT_TRUE(again.model->tables()[0]->Check().ok() != again.model->tables()[1]->Check().ok());
}

TEST_F(TableCheckerTest, LeavesAloneWhatTheLoadRead) {
  {
    const auto checker = MakeChecker(engine::kCheckedTableBytes);
    const ServedModel model = Load();
    Damage();
    checker->Offer(model);
  }
  EXPECT_EQ(reports(), 0u);
}

TEST_F(TableCheckerTest, EndsWithTheDaemon) {
  const ServedModel model = Load();
  for (int i = 0; i < 50; ++i) {
    const auto checker = MakeChecker(0);
    checker->Offer(model);
  }
  EXPECT_EQ(reports(), 0u);
}

}  // namespace
}  // namespace ulfd::server
