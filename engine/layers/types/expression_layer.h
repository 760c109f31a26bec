// Formulas, as building blocks of graph passes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_EXPRESSION_LAYER_H_
#define ULFD_ENGINE_LAYERS_TYPES_EXPRESSION_LAYER_H_

#include <memory>

#include "engine/layers/common/expression.h"
#include "engine/layers/layer.h"

namespace ulfd::engine {

// expression_layer.
std::unique_ptr<Layer> MakeExpression(Expression expression);
// The formula of an expression_layer; null for any other.
const Expression* ExpressionOf(const Layer& layer);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_EXPRESSION_LAYER_H_
