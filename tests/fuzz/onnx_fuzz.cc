// ONNX models -> converted -> loaded, as the converter itself tries what it wrote.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "engine/tensor/onednn.h"
#include "onnx/onnx_pb.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/proto_mutator.h"
#include "tools/convert/convert.h"

namespace {

const std::vector<std::string>& Names() {
  static const auto* const names = new std::vector<std::string>{"Gemm",
                                                                "MatMul",
                                                                "Add",
                                                                "Sub",
                                                                "Mul",
                                                                "Div",
                                                                "Relu",
                                                                "Sigmoid",
                                                                "Tanh",
                                                                "Softmax",
                                                                "Concat",
                                                                "Slice",
                                                                "Reshape",
                                                                "Transpose",
                                                                "Gather",
                                                                "Unsqueeze",
                                                                "Squeeze",
                                                                "Flatten",
                                                                "ReduceSum",
                                                                "ReduceMean",
                                                                "Conv",
                                                                "MaxPool",
                                                                "BatchNormalization",
                                                                "LayerNormalization",
                                                                "Constant",
                                                                "Shape",
                                                                "Expand",
                                                                "Where",
                                                                "Cast",
                                                                "Pow",
                                                                "Sqrt",
                                                                "axis",
                                                                "axes",
                                                                "perm",
                                                                "alpha",
                                                                "transB",
                                                                "starts",
                                                                "ends",
                                                                "to",
                                                                "value",
                                                                "x",
                                                                "y"};
  return *names;
}

}  // namespace

ULFD_FUZZ_PROTO(onnx::ModelProto, ulfd::fuzz::ProtoForm::kBinary, Names())

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ulfd::engine::UseOneThread();
  const std::string path = ulfd::fuzz::WriteScratch("m.onnx", ulfd::fuzz::AsText(data, size));
  const auto report = ulfd::convert::ConvertOnnx(path, ulfd::fuzz::EmptyScratch("out") + "/1", {});
  ulfd::fuzz::CheckMessage(report.status());
  if (report.ok() && report->ToString().empty()) ulfd::fuzz::Fail("an empty report");
  return 0;
}
