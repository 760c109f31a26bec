// Caffe nets and their weights -> converted -> loaded, as the converter itself tries what it wrote.
// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/text_format.h>

#include <string>

#include "engine/tensor/onednn.h"
#include "tests/fuzz/caffe_case.pb.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/proto_mutator.h"
#include "tools/convert/convert.h"

namespace {

const std::vector<std::string>& Names() {
  static const auto* const names = new std::vector<std::string>{
      "InnerProduct",  "Convolution", "ReLU",    "PReLU",   "Sigmoid",   "TanH",     "Softmax",
      "Concat",        "Slice",       "Eltwise", "Scale",   "BatchNorm", "Reshape",  "Flatten",
      "Pooling",       "Input",       "Data",    "Permute", "PriorBox",  "ROIAlign", "Yolo",
      "Dropout",       "Split",       "Bias",    "Power",   "Exp",       "Log",      "Crop",
      "Deconvolution", "LRN",         "Interp",  "data",    "x",         "y"};
  return *names;
}

}  // namespace

ULFD_FUZZ_PROTO(ulfd::fuzz::CaffeCase, ulfd::fuzz::ProtoForm::kText, Names())

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ulfd::engine::UseOneThread();
  ulfd::fuzz::CaffeCase caffe_case;
  if (!ulfd::fuzz::ReadMessage(ulfd::fuzz::ProtoForm::kText, data, size, caffe_case)) return 0;
  std::string net, weights;
  if (caffe_case.binary()) {
    net = caffe_case.net().SerializePartialAsString();
  } else {
    google::protobuf::TextFormat::PrintToString(caffe_case.net(), &net);
  }
  const std::string net_path = ulfd::fuzz::WriteScratch("net", net);
  if (caffe_case.has_weights()) {
    weights =
        ulfd::fuzz::WriteScratch("caffemodel", caffe_case.weights().SerializePartialAsString());
  }
  const auto report =
      ulfd::convert::ConvertCaffe(net_path, weights, ulfd::fuzz::EmptyScratch("out") + "/1", {});
  ulfd::fuzz::CheckMessage(report.status());
  if (report.ok() && report->ToString().empty()) ulfd::fuzz::Fail("an empty report");
  return 0;
}
