// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/onednn_convolution.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/load_scope.h"
#include "base/mutex.h"
#include "engine/tensor/onednn.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace ulfd::engine {

int64_t ConvolutionGeometry::OutputSize(int axis, int64_t input) const {
  const int64_t room = input + pad[axis] + pad[axis + 2] - dilation[axis] * (kernel[axis] - 1) - 1;
  return room < 0 ? 0 : room / stride[axis] + 1;
}

int64_t ConvolutionGeometry::InputSize(int axis, int64_t output) const {
  return (output - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1 - pad[axis] -
         pad[axis + 2];
}

namespace {

using Tag = dnnl::memory::format_tag;
constexpr auto kFloat = dnnl::memory::data_type::f32;
constexpr size_t kAlignment = 64;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Weights in a layout that some primitive wants.
struct LaidOutWeights {
  dnnl::memory::desc desc;
  dnnl::memory memory;
};

// The primitives for one number of images of one size.
struct Batch {
  int64_t rows = 0;
  dnnl::memory::desc plain_src, plain_dst, src, dst, scratchpad, bias;
  dnnl::convolution_forward convolution;
  dnnl::reorder to_src, from_dst;  // Unset where the layouts agree.
  std::shared_ptr<const LaidOutWeights> weights;

  size_t SrcBytes() const { return src == plain_src ? 0 : Aligned(src.get_size()); }
  size_t DstBytes() const { return dst == plain_dst ? 0 : Aligned(dst.get_size()); }
  size_t ScratchBytes() const { return SrcBytes() + DstBytes() + Aligned(scratchpad.get_size()); }
};

// All batches for one size of image, largest first; the last has one row.
struct Size {
  int64_t height = 0, width = 0;
  // Places of the output that are computed at a time, and those of the image and its padding that
  // they meet; the only batch is one such tile.  0: all.
  int64_t tile_height = 0, tile_width = 0, from_height = 0, from_width = 0;
  std::vector<Batch> batches;

  bool tiled() const { return tile_height > 0; }
};

// What lies from (top, left) on of an image [height, width], zeros around it.
void CopyWindow(const float* x, int64_t height, int64_t width, int64_t top, int64_t left,
                int64_t rows, int64_t columns, float* to) {
  const int64_t first = std::clamp<int64_t>(-left, 0, columns);
  const int64_t end = std::clamp<int64_t>(width - left, first, columns);
  for (int64_t row = top; row < top + rows; ++row, to += columns) {
    std::fill_n(to, columns, 0.0f);
    if (row < 0 || row >= height) continue;
    std::copy(x + row * width + left + first, x + row * width + left + end, to + first);
  }
}

// Makes something of oneDNN's, whose cache of primitives an exception would leave in disorder.
template <typename F>
auto InOneDnn(F make) {
  const LoadScope::WithoutRefusals no_exceptions;
  return make();
}

class Primitives final : public Convolution {
 public:
  Primitives(const ConvolutionGeometry& geometry, absl::Span<const float> weights,
             absl::Span<const float> bias)
      : geometry_(geometry),
        engine_(dnnl::engine::kind::cpu, 0),
        bias_(bias),
        plain_weights_(PlainWeights(), engine_, const_cast<float*>(weights.data())) {}

  // Throws dnnl::error.
  void Prepare(int64_t height, int64_t width) const { Find(height, width); }

  size_t ScratchBytes(int64_t rows, int64_t height, int64_t width) const override {
    try {
      const std::shared_ptr<const Size> size = Find(height, width);
      size_t bytes = 0;
      for (const Batch& batch : size->batches) {
        if (batch.rows <= std::max<int64_t>(rows, 1)) {
          bytes = std::max(bytes, batch.ScratchBytes());
        }
      }
      return bytes + (size->tiled() ? FromBytes(*size) + ToBytes(*size) : 0);
    } catch (const dnnl::error&) {
      return 0;  // Run meets the same error and reports it.
    }
  }

  absl::Status Run(const float* x, int64_t rows, int64_t height, int64_t width, float* y,
                   void* scratch, Pace& pace) const override {
    assert(UsesOneThread());
    const int64_t x_row = geometry_.in_channels * height * width;
    const int64_t y_row =
        geometry_.out_channels * geometry_.OutputSize(0, height) * geometry_.OutputSize(1, width);
    try {
      const std::shared_ptr<const Size> size = Find(height, width);
      dnnl::stream stream(engine_);
      int64_t done = 0;
      for (const Batch& batch : size->batches) {
        for (; rows - done >= batch.rows; done += batch.rows) {
          if (size->tiled()) {
            RunTiles(*size, stream, x + done * x_row, y + done * y_row, static_cast<char*>(scratch),
                     pace);
          } else if (!pace.Stops(batch.rows * y_row * PlaceWork() / geometry_.out_channels)) {
            Execute(batch, stream, x + done * x_row, y + done * y_row, static_cast<char*>(scratch));
          }
        }
      }
    } catch (const dnnl::error& e) {
      return Internal("oneDNN convolution: ", e.message);
    }
    return absl::OkStatus();
  }

  int64_t bytes() const override {
    const MutexLock lock(mu_);
    int64_t bytes = 0;
    for (const auto& weights : laid_out_) {
      if (const auto held = weights.lock()) bytes += static_cast<int64_t>(held->desc.get_size());
    }
    return bytes;
  }

 private:
  // Multiplications for an image that is not cut, as usual networks have them (the copies take up
  // to half as long again where windows are small), and for a tile.
  static constexpr int64_t kImageWork = 64 * Pace::kMillisecond, kTileWork = kImageWork / 8;
  // oneDNN writes a kilobyte of code for each column of the output, in 4 us.
  static constexpr int64_t kMostColumns = 512;
  // Rows per batch: few enough that input and output stay in the second-level cache.
  static constexpr int64_t kBatchBytes = 256 << 10;
  static constexpr int64_t kMaxBatch = 16;

  dnnl::memory::dims WeightDims() const {
    const int64_t g = geometry_.groups;
    dnnl::memory::dims dims = {geometry_.out_channels / g, geometry_.in_channels / g,
                               geometry_.kernel[0], geometry_.kernel[1]};
    if (g > 1) dims.insert(dims.begin(), g);
    return dims;
  }
  dnnl::memory::desc PlainWeights() const {
    return {WeightDims(), kFloat, geometry_.groups > 1 ? Tag::goihw : Tag::oihw};
  }

  // As the images are, a product of matrices.
  static bool IsProduct(const ConvolutionGeometry& g) {
    return g.groups == 1 && g.kernel == std::array<int64_t, 2>{1, 1} &&
           g.stride == std::array<int64_t, 2>{1, 1} && g.pad == std::array<int64_t, 4>{};
  }

  // Multiplications per place of the output, for all of its channels.
  int64_t PlaceWork() const {
    return geometry_.in_channels / geometry_.groups * geometry_.kernel[0] * geometry_.kernel[1] *
           geometry_.out_channels;
  }
  size_t FromBytes(const Size& size) const {
    return Aligned(geometry_.in_channels * size.from_height * size.from_width * sizeof(float));
  }
  size_t ToBytes(const Size& size) const {
    return Aligned(geometry_.out_channels * size.tile_height * size.tile_width * sizeof(float));
  }

  // One image.  The last tiles cover some of what those before them did.
  void RunTiles(const Size& size, dnnl::stream& stream, const float* x, float* y, char* scratch,
                Pace& pace) const {
    auto* const from = reinterpret_cast<float*>(scratch);
    auto* const to = reinterpret_cast<float*>(scratch + FromBytes(size));
    char* const rest = scratch + FromBytes(size) + ToBytes(size);
    const int64_t height = geometry_.OutputSize(0, size.height);
    const int64_t width = geometry_.OutputSize(1, size.width);
    for (int64_t i = 0; i < height; i += size.tile_height) {
      const int64_t top = std::min(i, height - size.tile_height);
      for (int64_t j = 0; j < width; j += size.tile_width) {
        const int64_t left = std::min(j, width - size.tile_width);
        if (pace.Stops(size.tile_height * size.tile_width * PlaceWork())) return;
        for (int64_t c = 0; c < geometry_.in_channels; ++c) {
          CopyWindow(x + c * size.height * size.width, size.height, size.width,
                     top * geometry_.stride[0] - geometry_.pad[0],
                     left * geometry_.stride[1] - geometry_.pad[1], size.from_height,
                     size.from_width, from + c * size.from_height * size.from_width);
        }
        Execute(size.batches[0], stream, from, to, rest);
        for (int64_t r = 0; r < geometry_.out_channels * size.tile_height; ++r) {
          const int64_t channel = r / size.tile_height, row = top + r % size.tile_height;
          std::copy_n(to + r * size.tile_width, size.tile_width,
                      y + (channel * height + row) * width + left);
        }
      }
    }
  }

  std::shared_ptr<const Size> Find(int64_t height, int64_t width) const {
    {
      const MutexLock lock(mu_);
      for (const auto& size : sizes_) {
        if (size->height == height && size->width == width) return size;
      }
    }
    // Made outside the lock: others go on meanwhile, and two threads may make the same.
    std::shared_ptr<const Size> made = Make(height, width);
    const MutexLock lock(mu_);
    if (sizes_.size() >= kMaxSizes) sizes_.erase(sizes_.begin());
    sizes_.push_back(made);
    return made;
  }

  std::shared_ptr<const Size> Make(int64_t height, int64_t width) const {
    const OneThread one_thread;
    auto size = std::make_shared<Size>();
    size->height = height;
    size->width = width;
    const int64_t out_height = geometry_.OutputSize(0, height);
    const int64_t out_width = geometry_.OutputSize(1, width);
    const bool wide = out_width > kMostColumns && !IsProduct(geometry_);
    if (wide || out_height * out_width > kImageWork / PlaceWork()) {
      const int64_t places = std::max<int64_t>(1, kTileWork / PlaceWork());
      size->tile_width = std::min({out_width, places, kMostColumns});
      size->tile_height = std::clamp<int64_t>(places / size->tile_width, 1, out_height);
      ConvolutionGeometry tile = geometry_;
      tile.pad = {};  // Copied as zeros.
      size->from_height = tile.InputSize(0, size->tile_height);
      size->from_width = tile.InputSize(1, size->tile_width);
      size->batches.push_back(MakeBatch(tile, 1, size->from_height, size->from_width));
      return size;
    }
    const int64_t floats =
        geometry_.in_channels * height * width + geometry_.out_channels * out_height * out_width;
    for (int64_t rows = kMaxBatch; rows >= 1; rows /= 4) {
      if (rows > 1 && rows * floats * static_cast<int64_t>(sizeof(float)) > kBatchBytes) continue;
      size->batches.push_back(MakeBatch(geometry_, rows, height, width));
    }
    return size;
  }

  Batch MakeBatch(const ConvolutionGeometry& g, int64_t rows, int64_t height, int64_t width) const {
    const dnnl::memory::dims x = {rows, g.in_channels, height, width};
    const dnnl::memory::dims y = {rows, g.out_channels, g.OutputSize(0, height),
                                  g.OutputSize(1, width)};
    Batch batch;
    batch.rows = rows;
    batch.plain_src = dnnl::memory::desc(x, kFloat, Tag::nchw);
    batch.plain_dst = dnnl::memory::desc(y, kFloat, Tag::nchw);
    if (!bias_.empty()) batch.bias = dnnl::memory::desc({y[1]}, kFloat, Tag::a);
    // Anything but a product is faster on oneDNN's own layout, even with the copies that takes
    // (tests/bench/convolution_bench).
    const Tag images = IsProduct(g) ? Tag::nchw : Tag::any;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::convolution_forward::desc op(
        dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
        dnnl::memory::desc(x, kFloat, images), dnnl::memory::desc(WeightDims(), kFloat, Tag::any),
        batch.bias, dnnl::memory::desc(y, kFloat, images), Pair(g.stride, 0), Pair(g.dilation, -1),
        {g.pad[0], g.pad[1]}, {g.pad[2], g.pad[3]});
    const auto described = InOneDnn(
        [&] { return dnnl::convolution_forward::primitive_desc(op, attributes, engine_); });
    batch.convolution = InOneDnn([&] { return dnnl::convolution_forward(described); });
    batch.src = described.src_desc();
    batch.dst = described.dst_desc();
    batch.scratchpad = described.scratchpad_desc();
    batch.weights = LayOut(described.weights_desc());
    if (batch.src != batch.plain_src) batch.to_src = Reorder(batch.plain_src, batch.src);
    if (batch.dst != batch.plain_dst) batch.from_dst = Reorder(batch.dst, batch.plain_dst);
    return batch;
  }

  static dnnl::memory::dims Pair(const std::array<int64_t, 2>& pair, int64_t plus) {
    return {pair[0] + plus, pair[1] + plus};
  }
  dnnl::reorder Reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) const {
    return InOneDnn(
        [&] { return dnnl::reorder(dnnl::reorder::primitive_desc(engine_, from, engine_, to)); });
  }

  // The weights in that layout, made once.
  std::shared_ptr<const LaidOutWeights> LayOut(const dnnl::memory::desc& desc) const {
    {
      const MutexLock lock(mu_);
      for (const auto& weights : laid_out_) {
        std::shared_ptr<const LaidOutWeights> held = weights.lock();
        if (held != nullptr && held->desc == desc) return held;
      }
    }
    // oneDNN's layouts pad channels: a kernel of one channel may take 256 times its weights.
    if (!LoadScope::Charge(static_cast<int64_t>(desc.get_size())).ok()) throw std::bad_alloc();
    auto weights = std::make_shared<LaidOutWeights>();
    weights->desc = desc;
    weights->memory = dnnl::memory(desc, engine_);
    dnnl::stream stream(engine_);
    dnnl::memory plain = plain_weights_;
    Reorder(plain_weights_.get_desc(), desc).execute(stream, plain, weights->memory);
    stream.wait();
    const MutexLock lock(mu_);
    std::erase_if(laid_out_, [](const auto& w) { return w.expired(); });
    laid_out_.push_back(weights);
    return weights;
  }

  void Execute(const Batch& batch, dnnl::stream& stream, const float* x, float* y,
               char* scratch) const {
    dnnl::memory plain_src(batch.plain_src, engine_, const_cast<float*>(x));
    dnnl::memory plain_dst(batch.plain_dst, engine_, y);
    dnnl::memory src = plain_src;
    dnnl::memory dst = plain_dst;
    if (batch.SrcBytes() > 0) {
      src = dnnl::memory(batch.src, engine_, scratch);
      batch.to_src.execute(stream, plain_src, src);
    }
    if (batch.DstBytes() > 0) dst = dnnl::memory(batch.dst, engine_, scratch + batch.SrcBytes());
    std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, batch.weights->memory}, {DNNL_ARG_DST, dst}};
    if (!bias_.empty()) {
      arguments.emplace(DNNL_ARG_BIAS,
                        dnnl::memory(batch.bias, engine_, const_cast<float*>(bias_.data())));
    }
    if (batch.scratchpad.get_size() > 0) {
      arguments.emplace(
          DNNL_ARG_SCRATCHPAD,
          dnnl::memory(batch.scratchpad, engine_, scratch + batch.SrcBytes() + batch.DstBytes()));
    }
    batch.convolution.execute(stream, arguments);
    if (batch.DstBytes() > 0) batch.from_dst.execute(stream, dst, plain_dst);
  }

  const ConvolutionGeometry geometry_;
  const dnnl::engine engine_;
  const absl::Span<const float> bias_;
  const dnnl::memory plain_weights_;
  mutable Mutex mu_;
  mutable std::vector<std::shared_ptr<const Size>> sizes_ ABSL_GUARDED_BY(mu_);  // Oldest first.
  mutable std::vector<std::weak_ptr<const LaidOutWeights>> laid_out_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Convolution>> Convolution::Create(
    const ConvolutionGeometry& geometry, absl::Span<const float> weights,
    absl::Span<const float> bias, int64_t height, int64_t width) {
  try {
    auto made = std::make_unique<Primitives>(geometry, weights, bias);
    if (geometry.OutputSize(0, height) > 0 && geometry.OutputSize(1, width) > 0 && height > 0 &&
        width > 0) {
      made->Prepare(height, width);
    }
    return std::unique_ptr<const Convolution>(std::move(made));
  } catch (const dnnl::error& e) {
    return Internal("oneDNN convolution: ", e.message);
  }
}

}  // namespace ulfd::engine
