// Inputs whose rows are not in front: those of models of one user, and steps first.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_ROWS_ROWS_IN_FRONT_H_
#define ULFD_TOOLS_CONVERT_ONNX_ROWS_ROWS_IN_FRONT_H_

#include "tools/convert/convert.h"
#include "tools/convert/onnx/model/onnx_model.h"

namespace ulfd::convert {

// Inputs [1, ads, ...] of a model that gives [1, ads] or [ads] become [ads, ...], and its outputs:
// an axis of any length behind a batch that every output has.  The batch is the user's one row,
// unless its name or `options` say that its rows are the ads'.  So do inputs [steps, rows, ...] of
// as many steps as a number says, whose other axis has the name of rows in front elsewhere.
void PutRowsInFront(const ConvertOptions& options, OnnxModel& model);

// Numbers and lists of a fixed length have no rows: they get an axis of one row, the user's, if
// others have any number of rows, or `options` names them.
void AddUserRows(const ConvertOptions& options, OnnxModel& model);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_ROWS_ROWS_IN_FRONT_H_
