// Exports for one user, whose row stands in front of the ads' rows, or nowhere.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_ROWS_ONE_USER_H_
#define ULFD_TOOLS_CONVERT_ONNX_ROWS_ONE_USER_H_

#include "tools/convert/convert.h"
#include "tools/convert/onnx/model/onnx_model.h"

namespace ulfd::convert {

// Inputs [1, ads, ...] of a model that gives [1, ads] or [ads] get the ads in front, [ads, ...]: an
// axis of any length behind a batch that every output has.  The batch is the user's one row, unless
// its name or `options` say that its rows are the ads'.
void PutAdsInFront(const ConvertOptions& options, OnnxModel& model);

// Numbers and lists of a fixed length have no rows: they get an axis of one row, the user's, if
// others have any number of rows, or `options` names them.
void AddUserRows(const ConvertOptions& options, OnnxModel& model);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_ROWS_ONE_USER_H_
