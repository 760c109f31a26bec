// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/run_memory.h"

#include <algorithm>

#include "engine/embedding/pooling.h"
#include "engine/runtime/executor.h"

namespace ulfd::engine {

namespace {

using Place = Operand::Place;

// Scratch that embeddings take for the request's ids.
int64_t IdScratch(const UserPart& part) {
  int64_t ids = 0;
  for (const FeatureInfo& feature : part.executable->info->features) {
    ids = SaturatingAdd(ids, part.request.inputs[feature.ids].elements());
  }
  return SaturatingMultiply(ids, kPoolingScratchBytes);
}

// What computing apart the ads that the cache lacks takes.
int64_t GatheredBytes(const Schedule& schedule, int64_t ads) {
  int64_t row = 0;
  for (const Operand& in : schedule.item_inputs) row += in.row_bytes;
  return SaturatingAdd(Schedule::For(schedule.ad_layouts, ads).bytes, SaturatingMultiply(ads, row));
}

}  // namespace

absl::Status CheckRunMemory(const RunOptions& options, const UserPart& part, int64_t output_bytes) {
  if (options.max_memory_bytes == 0) return absl::OkStatus();
  const Schedule& schedule = *part.schedule;
  const int64_t users = std::min(part.users, Schedule::kMaxUsers);
  const int64_t ads = std::min(part.ads, schedule.tile_rows);
  const int64_t arenas = SaturatingAdd(Schedule::For(schedule.user_layouts, users).bytes,
                                       Schedule::For(schedule.ad_layouts, ads).bytes);
  const int64_t scratch = std::max({Schedule::For(schedule.user_scratch, users),
                                    Schedule::For(schedule.ad_scratch, ads), IdScratch(part)});
  int64_t needed = SaturatingAdd(output_bytes, SaturatingAdd(arenas, scratch));
  if (!schedule.item_kept.empty()) needed = SaturatingAdd(needed, GatheredBytes(schedule, ads));
  if (needed <= options.max_memory_bytes) return absl::OkStatus();
  LargestTensor largest;
  for (const auto* steps : {&schedule.user_steps, &schedule.ad_steps}) {
    for (const RowStep& step : *steps) {
      for (size_t o = 0; o < step.out.size(); ++o) {
        Tensor tensor = step.out[o].form;
        if (step.out[o].place == Place::kUser) tensor.dims[0] = users;
        if (step.out[o].place == Place::kAd) tensor.dims[0] = ads;
        largest.Offer(schedule.plan->graph.values[step.step->node->outputs[o]].name, tensor);
      }
    }
  }
  return largest.TooMuch(needed, options.max_memory_bytes);
}

}  // namespace ulfd::engine
