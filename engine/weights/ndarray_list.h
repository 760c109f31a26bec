// MXNet NDArray lists, the format of XDL's dense.txt (which is not text).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_WEIGHTS_NDARRAY_LIST_H_
#define ULFD_ENGINE_WEIGHTS_NDARRAY_LIST_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/weights/npz.h"

namespace ulfd::engine {

// Whether `content` begins like one.
bool IsNdarrayList(absl::string_view content);

// All numbers little-endian:
//   u64 0x112, u64 0, u64 count, then per array
//     u32 0xF993FAC9 (version 2), i32 0 (dense), u32 ndim, i64 dims[ndim], i32 i32 device
//     (ignored), i32 type (0 float32, 1 float64, 2 float16, 3 uint8, 4 int32, 5 int8, 6 int64),
//     elements, row-major
//   u64 count, then per name u64 length, bytes.
// The prefixes var:, aux: and arg: of names are cut.  Errors name the array (by number until its
// name is known) and do not name the file.
absl::StatusOr<NpzArrays> ParseNdarrayList(absl::string_view content);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_WEIGHTS_NDARRAY_LIST_H_
