// How much of a tile's memory stays close to a core.
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/cache_size.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace ulfd::engine {

namespace {

constexpr int64_t kDefault = 512 << 10;
// Beyond these a figure is a virtual machine's invention, or shared by many cores.
constexpr int64_t kLeast = 128 << 10, kMost = 4 << 20;

// "512K"; 0 if the file is not there or says something else.
int64_t FromSysfs() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index2/size");
  int64_t size = 0;
  char unit = '\0';
  file >> size;
  if (!file || size <= 0) return 0;
  file >> unit;
  if (unit == 'K') return size << 10;
  return unit == 'M' ? size << 20 : size;
}

}  // namespace

int64_t SecondLevelCacheBytes() {
  int64_t bytes = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
  bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
  if (bytes <= 0) bytes = FromSysfs();
  return bytes <= 0 ? kDefault : std::clamp(bytes, kLeast, kMost);
}

}  // namespace ulfd::engine
