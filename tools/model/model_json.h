// What `ulf inspect --json` prints.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_MODEL_MODEL_JSON_H_
#define ULFD_TOOLS_MODEL_MODEL_JSON_H_

#include <string>

#include "engine/layers/layer.h"
#include "engine/runtime/model.h"

namespace ulfd::tools {

// One object: the fields of engine::ModelInfo under their own names; shapes are arrays of numbers
// and of strings such as "ads", null for any rank; levels, types and tables are names.
std::string ModelJson(const engine::ModelInfo& info);

// One array of objects: name, summary, inputs, outputs and weights as {"min", "max"} (max null: no
// limit), parameters.
std::string LayerTypesJson();

// "bn_param", or "" if the type has no message of parameters.
std::string ParameterFieldName(const engine::LayerType& type);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_MODEL_MODEL_JSON_H_
