// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/onednn.h"

#include <omp.h>

namespace ulfd::engine {

void UseOneThread() { omp_set_num_threads(1); }

bool UsesOneThread() { return omp_get_max_threads() == 1; }

OneThread::OneThread() : before_(omp_get_max_threads()) { UseOneThread(); }
OneThread::~OneThread() { omp_set_num_threads(before_); }

}  // namespace ulfd::engine
