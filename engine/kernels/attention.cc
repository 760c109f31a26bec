// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "engine/kernels/low_precision.h"
#include "engine/kernels/table.h"

namespace ulfd::engine {
namespace {

constexpr int64_t kAdTile = 32;         // Ads whose part of the first layer is computed at once.
constexpr int64_t kPieceFloats = 8192;  // Of one layer's values.
constexpr float kUnderflow = -104.0f;   // exp of this is 0.

int64_t Widest(const AttentionSpec& spec) {
  int64_t widest = spec.hidden;
  for (const AttentionStage& stage : spec.stages) widest = std::max(widest, stage.w.n);
  return widest;
}

// Steps that go through the layers together; the last ones with up to half as many again.
int64_t PieceSteps(const AttentionSpec& spec) {
  return std::max<int64_t>(kPieceFloats / std::max<int64_t>(1, Widest(spec)) / 12, 1) * 12;
}
int64_t MaxPieceSteps(const AttentionSpec& spec, int64_t steps) {
  return std::min(steps, PieceSteps(spec) * 3 / 2);
}

// Multiplications of all layers for a step of one ad.
int64_t StepWork(const AttentionSpec& spec) {
  int64_t work = spec.width * spec.hidden;
  for (const AttentionStage& stage : spec.stages) work += stage.k * stage.w.n;
  return work;
}

bool HasProduct(const AttentionSpec& spec) { return spec.product_weight.data != nullptr; }
bool MakesBf16(const AttentionSpec& spec) { return spec.bf16 && HasProduct(spec); }
bool ReadsBf16(const AttentionSpec& spec) {
  return std::any_of(spec.stages.begin(), spec.stages.end(), [](const AttentionStage& stage) {
    return stage.w.precision == Precision::kBf16;
  });
}

int64_t PairsOf(int64_t k) { return FloatsOf(Precision::kBf16, k); }
// Rows without gaps, before and after.
void ToBf16(const float* x, int64_t rows, int64_t k, float* to) {
  const FcBlock block{x, k, k};
  RoundRows(Precision::kBf16, absl::MakeConstSpan(&block, 1), rows, {to, PairsOf(k)});
}

// Hands out scratch, or, from null, counts it.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}
  float* Floats(int64_t count) {
    char* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (static_cast<size_t>(count) * sizeof(float) + 63) / 64 * 64;
    return reinterpret_cast<float*>(at);
  }
  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

struct Scratch {
  float* q_part;  // [kAdTile, hidden]: q Wq + b.
  float* k_part;  // [steps, hidden]: k Wk, without a product.
  float* weight;  // Wk + diag(q) Wp.
  float* bf16_weight;
  float* values[2];  // Of the layers, by turns.
  float* bf16_values;
  float* logits;  // [steps]
  float* k;       // Of the steps that the mask leaves.
  float* v;
  float* bf16_k;
  size_t bytes;
};

Scratch Carve(const AttentionSpec& spec, int64_t steps, int64_t v_width, void* base) {
  Carver carver(base);
  Scratch s;
  s.q_part = carver.Floats(kAdTile * spec.hidden);
  s.k_part = carver.Floats(HasProduct(spec) ? 0 : steps * spec.hidden);
  s.weight =
      carver.Floats(HasProduct(spec) ? PackedMatrix::PackedFloats(spec.width, spec.hidden) : 0);
  const int64_t pairs = PairsOf(spec.width);
  s.bf16_weight = carver.Floats(
      MakesBf16(spec) ? PackedMatrix::PackedFloats(pairs, spec.hidden) + MatrixView::kSlack : 0);
  const int64_t piece = MaxPieceSteps(spec, steps), widest = Widest(spec);
  for (float*& values : s.values) values = carver.Floats(piece * widest);
  s.bf16_values = carver.Floats(ReadsBf16(spec) ? piece * PairsOf(widest) : 0);
  s.logits = carver.Floats(steps);
  s.k = carver.Floats(steps * spec.width);
  s.v = carver.Floats(steps * v_width);
  s.bf16_k = carver.Floats(MakesBf16(spec) ? steps * pairs : 0);
  s.bytes = carver.used();
  return s;
}

// The history of one ad, whole or without what the mask leaves out.
struct History {
  int64_t steps = 0;
  const float* k = nullptr;
  const float* k_part = nullptr;  // Null: not computed.
  const float* v = nullptr;
};

class Unit {
 public:
  Unit(const AttentionSpec& spec, const AttentionCall& call, void* scratch, Isa isa)
      : spec_(spec),
        call_(call),
        scratch_(Carve(spec, call.steps, spec.pooled ? call.v_width : 0, scratch)),
        isa_(isa),
        piece_(PieceSteps(spec)),
        step_work_(StepWork(spec) + call.v_width),
        pace_(call.pace == nullptr ? unhurried_ : *call.pace) {}

  void Run() {
    const bool compact = Compact();
    if (!compact && call_.k_stride == 0) shared_ = WholeHistory(0);
    if (call_.k_stride == 0) PrepareShared();
    for (int64_t tile = 0; tile < call_.ads && !pace_.Stops(0); tile += kAdTile) {
      const int64_t ads = std::min(kAdTile, call_.ads - tile);
      PrepareQ(tile, ads);
      for (int64_t ad = tile; ad < tile + ads; ++ad) {
        const float* start = q_start_ == nullptr ? nullptr : q_start_ + (ad - tile) * q_stride_;
        if (spec_.pooled) {
          Pool(ad, start, compact);
        } else {
          float* y = call_.y + ad * call_.steps * spec_.outputs();
          Layers(ad, HistoryOf(ad), start, y);
        }
      }
    }
  }

 private:
  const int32_t* MaskOf(int64_t ad) const {
    return call_.mask == nullptr || mask_is_void_ ? nullptr : call_.mask + ad * call_.mask_stride;
  }
  History WholeHistory(int64_t ad) const {
    return {call_.steps, call_.k + ad * call_.k_stride, nullptr,
            call_.v == nullptr ? nullptr : call_.v + ad * call_.v_stride};
  }
  History HistoryOf(int64_t ad) const {
    if (call_.k_stride != 0) return WholeHistory(ad);
    History h = shared_;
    if (call_.v_stride != 0) h.v = call_.v + ad * call_.v_stride;
    return h;
  }

  // Whether steps with this logit weigh exactly nothing beside one of `max`.
  bool WeighsNothing(float max) const {
    return std::isfinite(max) && spec_.pad - max <= kUnderflow;
  }

  // Gathers the steps that the user's mask leaves, if the others may be left out.
  bool Compact() {
    if (call_.mask == nullptr || call_.mask_stride != 0 || !spec_.pooled) return false;
    int64_t left = 0;
    for (int64_t t = 0; t < call_.steps; ++t) left += call_.mask[t] > 0;
    mask_is_void_ = left == call_.steps;
    if (mask_is_void_ || left == 0 || call_.k_stride != 0 || call_.v_stride != 0) return false;
    if (!WeighsNothing(0.0f)) return false;  // Logits of about 0; the true ones are checked later.
    const int64_t e = spec_.width, w = call_.v_width;
    for (int64_t t = 0; t < call_.steps; ++t) {
      if (call_.mask[t] > 0) continue;
      const float* v = call_.v + t * w;
      if (!std::all_of(v, v + w, [](float x) { return std::isfinite(x); })) return false;
    }
    const bool same = call_.v == call_.k && w == e;
    int64_t at = 0;
    for (int64_t t = 0; t < call_.steps; ++t) {
      if (call_.mask[t] <= 0) continue;
      std::copy_n(call_.k + t * e, e, scratch_.k + at * e);
      if (!same) std::copy_n(call_.v + t * w, w, scratch_.v + at * w);
      ++at;
    }
    shared_ = {left, scratch_.k, nullptr, same ? scratch_.k : scratch_.v};
    return true;
  }

  // Without a product the steps' part is the same for all ads.
  void PrepareShared() {
    if (HasProduct(spec_) || spec_.k_weight.data == nullptr) return;
    FcBlock k{shared_.k, spec_.width, spec_.width};
    FcCall fc;
    fc.rows = shared_.steps;
    fc.w = spec_.k_weight;
    fc.y = scratch_.k_part;
    fc.y_stride = spec_.hidden;
    FcInPieces(fc, absl::MakeSpan(&k, 1), pace_, isa_);
    shared_.k_part = scratch_.k_part;
  }

  // The ads' part of the first layer, which is where its sums start.
  void PrepareQ(int64_t first, int64_t ads) {
    q_start_ = spec_.bias;
    q_stride_ = 0;
    if (spec_.q_weight.data == nullptr) return;
    const FcBlock q{call_.q + first * call_.q_stride, call_.q_stride, spec_.width};
    FcCall fc;
    fc.blocks = absl::MakeConstSpan(&q, 1);
    fc.rows = ads;
    fc.w = spec_.q_weight;
    fc.init = spec_.bias;
    fc.y = scratch_.q_part;
    fc.y_stride = spec_.hidden;
    Fc(fc, isa_);
    q_start_ = scratch_.q_part;
    q_stride_ = spec_.hidden;
  }

  // The first layer for some steps of one ad.
  void First(const History& h, int64_t from, int64_t steps, const float* start, float* y) const {
    if (h.k_part != nullptr) {
      const Strided part{h.k_part + from * spec_.hidden, spec_.hidden, 1};
      if (start == nullptr) {
        KernelsOf(isa_).epilogue(spec_.epilogue, part.data, part.stride, y, spec_.hidden, steps,
                                 spec_.hidden);
        return;
      }
      KernelsOf(isa_).binary(BinaryOp::kAdd, part, {start, 0, 1}, y, spec_.hidden, steps,
                             spec_.hidden);
      KernelsOf(isa_).epilogue(spec_.epilogue, y, spec_.hidden, y, spec_.hidden, steps,
                               spec_.hidden);
      return;
    }
    const bool reads_k = HasProduct(spec_) || spec_.k_weight.data != nullptr;
    FcBlock k{h.k + from * spec_.width, spec_.width, spec_.width};
    if (MakesBf16(spec_)) {
      const int64_t pairs = PairsOf(spec_.width);
      k = {scratch_.bf16_k + from * pairs, pairs, pairs};
    }
    FcCall fc;
    fc.blocks = absl::MakeConstSpan(&k, reads_k ? 1 : 0);
    fc.rows = steps;
    fc.w = HasProduct(spec_) ? weight_ : spec_.k_weight;
    if (!reads_k) fc.w = PackedMatrix::ViewOf(nullptr, 0, spec_.hidden);
    fc.init = start;
    fc.epilogue = spec_.epilogue;
    fc.y = y;
    fc.y_stride = spec_.hidden;
    Fc(fc, isa_);
  }

  // Wk + diag(q) Wp of one ad, and the history that it meets.
  void PrepareProduct(int64_t ad, const History& h) {
    KernelsOf(isa_).scale_rows(spec_.k_weight, spec_.product_weight, call_.q + ad * call_.q_stride,
                               scratch_.weight);
    weight_ = PackedMatrix::ViewOf(scratch_.weight, spec_.width, spec_.hidden);
    if (!spec_.bf16) return;
    weight_ = PairRows(weight_, scratch_.bf16_weight);
    if (h.k == rounded_k_ && h.steps == rounded_steps_) return;
    ToBf16(h.k, h.steps, spec_.width, scratch_.bf16_k);
    rounded_k_ = h.k;
    rounded_steps_ = h.steps;
  }

  // All layers for one ad: y is [steps, outputs].
  void Layers(int64_t ad, const History& h, const float* start, float* y) {
    if (HasProduct(spec_)) PrepareProduct(ad, h);
    const int64_t outputs = spec_.outputs();
    int64_t steps = 0;
    for (int64_t from = 0; from < h.steps; from += steps) {
      const int64_t left = h.steps - from;
      steps = left * 2 <= piece_ * 3 ? left : piece_;
      if (pace_.Stops(steps * step_work_)) return;
      float* const last = y + from * outputs;
      float* to = spec_.stages.empty() ? last : scratch_.values[0];
      First(h, from, steps, start, to);
      for (size_t i = 0; i < spec_.stages.size(); ++i) {
        const AttentionStage& stage = spec_.stages[i];
        FcBlock x{to, stage.k, stage.k};
        if (stage.w.precision == Precision::kBf16) {
          ToBf16(to, steps, stage.k, scratch_.bf16_values);
          x = {scratch_.bf16_values, stage.w.k, stage.w.k};
        }
        to = i + 1 == spec_.stages.size() ? last : scratch_.values[(i + 1) % 2];
        FcCall fc;
        fc.blocks = absl::MakeConstSpan(&x, 1);
        fc.rows = steps;
        fc.w = stage.w;
        fc.init = stage.bias;
        fc.epilogue = stage.epilogue;
        fc.y = to;
        fc.y_stride = stage.w.n;
        Fc(fc, isa_);
      }
    }
  }

  void Pool(int64_t ad, const float* start, bool compact) {
    History h = HistoryOf(ad);
    float* s = scratch_.logits;
    Layers(ad, h, start, s);
    if (pace_.Stops(0)) return;
    if (compact && WeighsNothing(*std::max_element(s, s + h.steps))) {
      // Nothing to mask.
    } else {
      if (compact) {
        h = WholeHistory(ad);
        Layers(ad, h, start, s);
      }
      if (const int32_t* mask = MaskOf(ad); mask != nullptr) {
        for (int64_t t = 0; t < h.steps; ++t) s[t] = mask[t] > 0 ? s[t] : spec_.pad;
      }
    }
    KernelsOf(isa_).softmax(s, s, 1, h.steps, 1, /*log=*/false);
    KernelsOf(isa_).weighted_sum(s, h.v, call_.v_width, h.steps, call_.v_width,
                                 call_.y + ad * call_.v_width);
  }

  const AttentionSpec& spec_;
  const AttentionCall& call_;
  const Scratch scratch_;
  const Isa isa_;
  const int64_t piece_;
  const int64_t step_work_;  // Multiplications of one ad.
  Pace unhurried_;
  Pace& pace_;
  bool mask_is_void_ = false;  // It leaves every step.
  History shared_;             // If one for all ads.
  const float* q_start_ = nullptr;
  int64_t q_stride_ = 0;
  MatrixView weight_;                 // With a product.
  const float* rounded_k_ = nullptr;  // What bf16_k holds.
  int64_t rounded_steps_ = 0;
};

}  // namespace

size_t AttentionScratchBytes(const AttentionSpec& spec, int64_t steps, int64_t v_width) {
  return Carve(spec, steps, spec.pooled ? v_width : 0, nullptr).bytes;
}

void Attention(const AttentionSpec& spec, const AttentionCall& call, void* scratch, Isa isa) {
  if (call.ads == 0) return;
  Unit(spec, call, scratch, isa).Run();
}

size_t DotProductScratchBytes(int64_t keys, int64_t width) {
  constexpr size_t kMostLanes = 16;
  return static_cast<size_t>(keys + width) * kMostLanes * sizeof(float);
}

}  // namespace ulfd::engine
