// npz archives and .npy headers: round trips, hand-made files, and every way in which they can be
// broken.
// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zip.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "engine/weights/npy.h"
#include "tests/testing/broken_files.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A zip archive with these members, as they are.
using Members = std::vector<std::pair<std::string, std::string>>;
std::string MakeZip(const TempDir& dir, const Members& members, bool deflate = false) {
  const std::string path = dir.File("made.npz");
  std::filesystem::remove(path);
  int code = 0;
  zip_t* zip = zip_open(path.c_str(), ZIP_CREATE, &code);
  for (const auto& [name, content] : members) {
    zip_source_t* source = zip_source_buffer(zip, content.data(), content.size(), 0);
    const auto index = static_cast<uint64_t>(zip_file_add(zip, name.c_str(), source, 0));
    zip_set_file_compression(zip, index, deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
  }
  EXPECT_EQ(zip_close(zip), 0);
  return path;
}

// A .npy file by hand.
std::string Npy(absl::string_view header, absl::string_view data, int version = 1) {
  const auto n = static_cast<uint32_t>(header.size());
  std::string length(reinterpret_cast<const char*>(&n), version == 1 ? 2 : 4);
  return absl::StrCat("\x93NUMPY", std::string(1, static_cast<char>(version)), std::string(1, '\0'),
                      length, header, data);
}
template <typename T>
std::string Bytes(std::initializer_list<T> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T));
}
std::string Dict(absl::string_view descr, absl::string_view shape, bool fortran = false) {
  return absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", fortran ? "True" : "False",
                      ", 'shape': ", shape, ", }\n");
}

// The array of an archive that holds nothing but this .npy file, or the error after the archive's
// path.
absl::StatusOr<NpyArray> ReadOne(const std::string& npy) {
  const TempDir dir;
  const std::string path = MakeZip(dir, {{"a.npy", npy}});
  absl::StatusOr<NpzArrays> arrays = ReadNpz(path);
  if (arrays.ok()) return arrays->at("a");
  const std::string prefix = path + ": array \"a\": ";
  EXPECT_EQ(arrays.status().message().substr(0, prefix.size()), prefix) << arrays.status();
  return absl::InvalidArgumentError(arrays.status().message().substr(prefix.size()));
}
std::string ErrorOf(const std::string& npy) { return std::string(ReadOne(npy).status().message()); }

TEST(Npz, RoundTripsEveryWrittenType) {
  const TempDir dir;
  const float f[] = {1.5f, -2, 3, 4, 5, 6};
  const int32_t i[] = {-7, 8};
  const int64_t l[] = {int64_t{1} << 40};
  NpzArrays arrays;
  arrays["layer/w"] = NpyArray::FromFloat32({2, 3}, f);
  arrays["i"] = NpyArray::FromInt32({2}, i);
  arrays["scalar"] = NpyArray::FromInt64({}, l);
  arrays["empty"] = NpyArray::FromFloat32({0, 4}, nullptr);
  const absl::Status written = WriteNpz(dir.File("x.npz"), arrays);
  ASSERT_TRUE(written.ok()) << written;
  const absl::StatusOr<NpzArrays> read = ReadNpz(dir.File("x.npz"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size(), 4u);
  EXPECT_THAT(read->at("layer/w").dims, ElementsAre(2, 3));
  EXPECT_THAT(read->at("layer/w").ToFloat32(), ElementsAre(1.5f, -2, 3, 4, 5, 6));
  EXPECT_EQ(read->at("i").type, NumberType::kInt32);
  EXPECT_THAT(read->at("i").ToInt64(), ElementsAre(-7, 8));
  EXPECT_TRUE(read->at("scalar").dims.empty());
  EXPECT_THAT(read->at("scalar").ToInt64(), ElementsAre(int64_t{1} << 40));
  EXPECT_THAT(read->at("empty").dims, ElementsAre(0, 4));
  // Nothing but the file itself is left behind, and equal arrays make equal files.
  ASSERT_TRUE(WriteNpz(dir.File("y.npz"), arrays).ok());
  EXPECT_EQ(*ReadFile(dir.File("x.npz")), *ReadFile(dir.File("y.npz")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 2);
}

TEST(Npz, WriteReplacesAndReportsFailures) {
  const TempDir dir;
  const float f[] = {1};
  ASSERT_TRUE(WriteNpz(dir.File("x.npz"), {{"a", NpyArray::FromFloat32({1}, f)}}).ok());
  ASSERT_TRUE(WriteNpz(dir.File("x.npz"), {{"b", NpyArray::FromFloat32({1}, f)}}).ok());
  EXPECT_TRUE(ReadNpz(dir.File("x.npz"))->contains("b"));
  EXPECT_THAT(std::string(WriteNpz(dir.File("no/x.npz"), {{"a", {}}}).message()),
              HasSubstr("no/x.npz: array \"a\": 0 bytes, want 4"));
  EXPECT_FALSE(WriteNpz(dir.File("no/x.npz"), {{"a", NpyArray::FromFloat32({1}, f)}}).ok());
  // What is no regular file is written to, and what a link leads to is replaced.
  std::filesystem::create_symlink("x.npz", dir.File("link"));
  ASSERT_TRUE(WriteNpz(dir.File("link"), {{"c", NpyArray::FromFloat32({1}, f)}}).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(dir.File("link")));
  EXPECT_TRUE(ReadNpz(dir.File("x.npz"))->contains("c"));
  EXPECT_EQ(WriteNpz("/dev/full", {{"a", NpyArray::FromFloat32({1}, f)}}).message(),
            "cannot write /dev/full: No space left on device");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(Npz, ReadsEveryTypeAndVersion) {
  const auto floats = [](const std::string& npy) { return ReadOne(npy)->ToFloat32(); };
  // float16: 1, -2, the smallest subnormal, the largest number, infinity.
  EXPECT_THAT(
      floats(Npy(Dict("<f2", "(5,)"), Bytes<uint16_t>({0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00}))),
      ElementsAre(1, -2, std::ldexp(1.0f, -24), 65504, INFINITY));
  EXPECT_THAT(floats(Npy(Dict("<f4", "(1,)"), Bytes<float>({0.1f}), 2)), ElementsAre(0.1f));
  EXPECT_THAT(floats(Npy(Dict("<f8", "(1,)"), Bytes<double>({0.1}), 3)), ElementsAre(0.1f));
  EXPECT_THAT(floats(Npy(Dict("|i1", "(2,)"), Bytes<int8_t>({-1, 5}))), ElementsAre(-1, 5));
  EXPECT_THAT(floats(Npy(Dict("|b1", "(3,)"), Bytes<uint8_t>({0, 1, 2}))), ElementsAre(0, 1, 1));
  EXPECT_THAT(floats(Npy(Dict("|u1", "(1,)"), Bytes<uint8_t>({255}))), ElementsAre(255));
  EXPECT_THAT(floats(Npy(Dict("<i2", "(1,)"), Bytes<int16_t>({-9}))), ElementsAre(-9));
  EXPECT_THAT(floats(Npy(Dict("<u2", "(1,)"), Bytes<uint16_t>({65535}))), ElementsAre(65535));
  EXPECT_THAT(floats(Npy(Dict("<i4", "(1,)"), Bytes<int32_t>({-9}))), ElementsAre(-9));
  EXPECT_THAT(floats(Npy(Dict("<u4", "(1,)"), Bytes<uint32_t>({1U << 31}))), ElementsAre(0x1p31f));
  EXPECT_THAT(floats(Npy(Dict("<u8", "(1,)"), Bytes<uint64_t>({~0ULL}))), ElementsAre(0x1p64f));
  EXPECT_THAT(floats(Npy(Dict("<i8", "()"), Bytes<int64_t>({-9}))), ElementsAre(-9));
  // Python 2's longs, other order of keys, double quotes, no blanks.
  const absl::StatusOr<NpyArray> odd = ReadOne(
      Npy("{\"shape\":(1L,2L),\"fortran_order\":False,\"descr\":\"<f4\"}", Bytes<float>({1, 2})));
  ASSERT_TRUE(odd.ok()) << odd.status();
  EXPECT_THAT(odd->dims, ElementsAre(1, 2));
}

TEST(Npz, IntegersOfFloatsAreTruncatedAndSaturated) {
  EXPECT_THAT(ReadOne(Npy(Dict("<f8", "(4,)"), Bytes<double>({-1.9, 1e30, -1e30, NAN})))->ToInt64(),
              ElementsAre(-1, INT64_MAX, INT64_MIN, 0));
}

TEST(Npz, TransposesFortranOrder) {
  const std::string npy =
      Npy(Dict("<i4", "(2, 3, 2)", true), Bytes<int32_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  // Element (i, j, k) is i + 2j + 6k in the file.
  EXPECT_THAT(ReadOne(npy)->ToInt64(), ElementsAre(0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11));
}

TEST(Npz, ReadsDeflatedMembers) {
  const TempDir dir;
  const std::string zeros(400000, '\0');
  const std::string path =
      MakeZip(dir, {{"a%2Fb.npy", Npy(Dict("<f4", "(100000,)"), zeros)}}, true);
  const absl::StatusOr<NpzArrays> arrays = ReadNpz(path);
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  EXPECT_EQ(arrays->at("a/b").bytes, zeros);
}

// libzip keeps what it reads of the list where no load counts it.
TEST(Npz, RefusesAListOfMembersWithoutEnd) {
  std::string listed;
  constexpr int kMembers = 500000;
  for (int i = 0; i < kMembers; ++i) {
    absl::StrAppend(&listed, std::string("PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\x21\0", 16),
                    std::string(12, '\0'), std::string("\x05\0", 2), std::string(16, '\0'),
                    absl::Hex(i, absl::kZeroPad5));
  }
  const auto number = [](uint64_t value, size_t bytes) {
    return std::string(reinterpret_cast<const char*>(&value), bytes);
  };
  const std::string wide = absl::StrCat(
      std::string("PK\x06\x06", 4), number(44, 8), number(45, 2), number(45, 2), number(0, 8),
      number(kMembers, 8), number(kMembers, 8), number(listed.size(), 8), number(0, 8));
  const std::string locator = absl::StrCat(std::string("PK\x06\x07", 4), number(0, 4),
                                           number(listed.size(), 8), number(1, 4));
  const std::string end = absl::StrCat(std::string("PK\x05\x06", 4), number(0, 4), number(~0, 2),
                                       number(~0, 2), number(~0, 4), number(~0, 4), number(0, 2));
  const TempDir dir;
  const std::string path = dir.Write("a.npz", listed + wide + locator + end);
  EXPECT_EQ(ReadNpz(path).status().message(),
            path + ": lists more members than an archive of arrays has");
}

TEST(Npz, RefusesTypesByName) {
  EXPECT_EQ(ErrorOf(Npy(Dict(">f4", "(1,)"), "abcd")),
            "type \">f4\" is big-endian, want little-endian");
  EXPECT_EQ(ErrorOf(Npy(Dict("|O", "(1,)"), "abcd")),
            "type \"|O\" (Python objects) is not supported");
  EXPECT_EQ(ErrorOf(Npy(Dict("<U3", "(1,)"), "abcd")),
            "type \"<U3\" is not supported, want <f2, <f4, <f8, |b1 or integers of 1 to 8 bytes");
  EXPECT_EQ(
      ErrorOf(Npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "abcd")),
      "structured arrays are not supported, want one number type");
}

TEST(Npz, RefusesBadHeaders) {
  EXPECT_EQ(ErrorOf("not numpy at all"), "not a .npy array (no magic string)");
  EXPECT_EQ(ErrorOf("\x93NUM"), "npy header: 4 bytes left, want 12");
  EXPECT_EQ(ErrorOf(Npy(Dict("<f4", "(1,)"), "abcd", 4)), "npy version 4.0, want 1.0, 2.0 or 3.0");
  EXPECT_EQ(ErrorOf(Npy("{'descr': '<f4', 'shape': (1,)}", "abcd")),
            "npy header: descr, fortran_order or shape is missing at "
            "\"{\\'descr\\': \\'<f4\\', \\'shape\\': (1,)}\"");
  EXPECT_EQ(ErrorOf(Npy("{'descr': '<f4', 'descr': '<f4'}", "abcd")),
            "npy header: unknown or repeated key at \"\\'descr\\': \\'<f4\\'}\"");
  EXPECT_EQ(ErrorOf(Npy("{'shape': (1, x)}     ", "abcd")),
            "npy header: want a dimension at \"x)}     \"");
  EXPECT_EQ(ErrorOf(Npy("{'shape': (1", "abcd")), "npy header: want , or ) at \"\"");
  EXPECT_EQ(ErrorOf(Npy("{'descr': '<f4", "abcd")),
            "npy header: want a quoted type at \" \\'<f4\"");
  EXPECT_EQ(ErrorOf(absl::StrCat("\x93NUMPY\x02", std::string(1, '\0'), "\xff\xff\xff\xff")),
            "npy header of 4294967295 bytes, want at most 65536");
}

TEST(Npz, ChecksSizesBeforeAllocating) {
  EXPECT_EQ(ErrorOf(Npy(Dict("<f4", "(10, 100)"), std::string(4100, 'x'))),
            "4100 bytes of data, want 4000 for float32 [10, 100]");
  EXPECT_EQ(ErrorOf(Npy(Dict("<f8", "(1000000000000,)"), "abcd")),
            "4 bytes of data, want 8000000000000 for float64 [1000000000000]");
  EXPECT_EQ(ErrorOf(Npy(Dict("<f4", "(4294967296, 4294967296)"), "")),
            "shape [4294967296, 4294967296] is not possible: more than 1099511627776 elements");
  EXPECT_EQ(ErrorOf(Npy(Dict("<f4", "(0, 9223372036854775807)"), "")),
            "shape [0, 9223372036854775807] is not possible: more than 1099511627776 elements");
  // Nobody counts through the other dimensions of an array without elements.
  EXPECT_EQ(ErrorOf(Npy(Dict("<f4", "(0, 1000000000)"), "")),
            "shape [0, 1000000000] is too large for an empty array");
  EXPECT_TRUE(ReadOne(Npy(Dict("<f4", "(0, 100000000)"), "")).ok());
  EXPECT_EQ(ErrorOf(Npy(Dict("<f4", "(-1, -4)"), "abcd")),
            "shape [-1, -4] is not possible: negative dimension");
  EXPECT_THAT(ErrorOf(Npy(Dict("<f4", "(99999999999999999999,)"), "abcd")),
              HasSubstr("want a dimension"));
}

TEST(Npz, RefusesArchivesThatAreNotWhole) {
  const TempDir dir;
  const std::string npy = Npy(Dict("<f4", "(1,)"), "abcd");
  const std::string path = MakeZip(dir, {{"a.npy", npy}});
  const std::string good = *ReadFile(path);
  EXPECT_EQ(ReadNpz(dir.Write("long.npz", good + "x")).status().message(),
            dir.File("long.npz") +
                ": no zip end record at the end of the file: it is truncated, or something was "
                "appended");
  EXPECT_EQ(ReadNpz(dir.Write("b.npz", "")).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadNpz(dir.File("none.npz")).status().code(), absl::StatusCode::kNotFound);
  std::string flipped = good;
  flipped[flipped.find("abcd")] = 'A';
  EXPECT_EQ(ReadNpz(dir.Write("crc.npz", flipped)).status().message(),
            dir.File("crc.npz") + ": array \"a\": cannot be unpacked: CRC error");
  EXPECT_EQ(ReadNpz(MakeZip(dir, {{"a.txt", npy}})).status().message(),
            path + ": member \"a.txt\": want a name that ends in .npy");
  EXPECT_EQ(ReadNpz(MakeZip(dir, {{"a/b.npy", npy}, {"a%2Fb.npy", npy}})).status().message(),
            path + ": array \"a/b\": occurs twice");
}

TEST(Npz, RefusesWhatUnpacksToFarMore) {
  const TempDir dir;
  const std::string npy = Npy(Dict("<f4", "(1,)"), "abcd");
  std::string archive = *ReadFile(MakeZip(dir, {{"a.npy", npy}, {"b.npy", npy}}, true));
  // Together too much.
  const uint32_t claimed = (128U << 20) + 1;
  for (size_t at = 0; (at = archive.find("PK\x01\x02", at)) != std::string::npos; ++at) {
    std::memcpy(&archive[at + 24], &claimed, sizeof(claimed));
  }
  EXPECT_EQ(ReadNpz(dir.Write("bomb.npz", archive)).status().message(),
            absl::StrCat(dir.File("bomb.npz"), ": more than 268435456 bytes are packed into ",
                         archive.size(),
                         ", want at most 256 MiB or 32 times the file (np.savez does not pack)"));
}

TEST(Npz, SurvivesDamage) {
  const TempDir dir;
  const std::string good =
      *ReadFile(MakeZip(dir,
                        {{"a.npy", Npy(Dict("<f4", "(2, 2)", true), std::string(16, 'x'))},
                         {"b.npy", Npy(Dict("<i8", "(9,)"), std::string(72, '\0'))}},
                        true));
  int accepted = 0;
  ForEachPrefix(good, [&dir](const std::string& bad) {
    EXPECT_FALSE(ReadNpz(dir.Write("bad.npz", bad)).ok()) << bad.size();
  });
  ForEachDamage(good, 3000, [&](const std::string& bad) {
    accepted += ReadNpz(dir.Write("bad.npz", bad)).ok() ? 1 : 0;
  });
  // Dates, attributes and such may change without harm; most damage must be found.
  EXPECT_LT(accepted, 1500);
}

TEST(Npz, NumpyReadsWhatWeWriteAndBack) {
  const std::string python = "/usr/bin/python3";
  if (std::system((python + " -c 'import numpy' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "no numpy for " << python;
  }
  const TempDir dir;
  const float f[] = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(WriteNpz(dir.File("in.npz"), {{"w", NpyArray::FromFloat32({2, 3}, f)}}).ok());
  dir.Write("t.py",
            "import numpy as np, sys\n"
            "w = np.load(sys.argv[1])['w']\n"
            "assert w.dtype == np.float32 and w.tolist() == [[1, 2, 3], [4, 5, 6]]\n"
            "np.savez(sys.argv[2], t=np.asfortranarray(w), h=w.astype('f2'), s=np.int64(3))\n"
            "np.savez_compressed(sys.argv[3], c=np.zeros((300, 300), 'f8'))\n");
  ASSERT_EQ(std::system(absl::StrCat(python, " ", dir.File("t.py"), " ", dir.File("in.npz"), " ",
                                     dir.File("a.npz"), " ", dir.File("b.npz"))
                            .c_str()),
            0);
  const absl::StatusOr<NpzArrays> a = ReadNpz(dir.File("a.npz"));
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_THAT(a->at("t").ToFloat32(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(a->at("h").type, NumberType::kFloat16);
  EXPECT_THAT(a->at("h").ToFloat32(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(a->at("s").ToInt64(), ElementsAre(3));
  const absl::StatusOr<NpzArrays> b = ReadNpz(dir.File("b.npz"));
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(b->at("c").elements(), 90000);
}

}  // namespace
}  // namespace ulfd::engine
