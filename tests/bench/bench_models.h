// The models that the benchmarks write and measure.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_BENCH_MODELS_H_
#define ULFD_TESTS_BENCH_BENCH_MODELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/scratch_model.h"

namespace ulfd::bench {

// Columns of DIN, as in the public export.
inline constexpr int64_t kDinHistory = 100, kDinEmbedding = 36, kDinUser = 18;

// A multilayer perceptron on dense columns `x` of the ads, `activation` ("relu_layer",
// "prelu_layer") between the layers, softmax at the end; nothing belongs to the user.  widths:
// columns of the input and of each layer.
void BuildMlp(ScratchModel& m, const std::vector<int32_t>& widths, const std::string& activation);

// Columns of the user (`user`) and of the ads (`ad`), put side by side by a fuse layer, then an
// MLP; widths: of its layers.
void BuildUserMlp(ScratchModel& m, int32_t user, int32_t ad, const std::vector<int32_t>& widths,
                  const std::string& activation);

// A GRU over `steps` steps of the user's history (`history`), and its last state beside as many
// columns of the ads in an MLP of 200-80-2.
void BuildGru(ScratchModel& m, int32_t steps, int32_t width);

// A Deep Interest Network (arXiv:1706.06978) of the size of the public export: 100 history items of
// 36 columns, attention 144-80-40-1, tower 144-200-80-2, with its embedding lookups.
void BuildDinWithLookups(ScratchModel& m);

// The public export layer by layer behind its lookups: attention 144-80-40-1 with the history's
// mask, tower 162-200-80-2 with bn and dice.  Inputs: `ad` [ads, 36], `uid` [1, 18], `history` [1,
// 100, 36] and `mask` [1, 100].
void BuildDin(ScratchModel& m);

// Twelve heads of dot-product attention, as large exports have them: two histories of 150 steps and
// two of 50, 108 columns each, cut out of one dense input of the user; three heads of 64 columns
// over each, asked by 108 of the ads' 732 columns through 8; then six layers with dice.  Inputs:
// `user` [1, 43506] and `ad` [ads, 732].
void BuildHeads(ScratchModel& m);

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_BENCH_MODELS_H_
