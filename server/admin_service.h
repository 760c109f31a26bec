// ulfd.admin.v1.AdminService: the state of the server, and a reload on demand.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_ADMIN_SERVICE_H_
#define ULFD_SERVER_ADMIN_SERVICE_H_

#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "engine/tensor/mutex.h"
#include "proto/admin.grpc.pb.h"
#include "server/status_report.h"

namespace ulfd::server {

// A reload takes as long as loading takes: it waits on a thread of this class, never on one of
// gRPC's or a worker's.
class AdminService final : public ulfd::admin::v1::AdminService::CallbackService {
 public:
  // Reloads that wait behind the one that runs; more are refused with RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxWaiting = 8;

  AdminService(ModelManager& models, const StatusReport& report, const Clock& clock);
  // Ends reloads that wait with UNAVAILABLE, then joins the thread.
  ~AdminService() override;
  // The first half of the destructor, for a server that waits for its calls: also bounds the reload
  // that runs.
  void Stop();

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* call,
                                      const ulfd::admin::v1::GetStatusRequest* request,
                                      ulfd::admin::v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* ReloadRepository(
      grpc::CallbackServerContext* call, const ulfd::admin::v1::ReloadRepositoryRequest* request,
      ulfd::admin::v1::ReloadRepositoryResponse* response) override;

 private:
  class Reload;
  void Loop();
  absl::Status Run(Reload& reload);

  ModelManager& models_;
  const StatusReport& report_;
  const Clock& clock_;

  Mutex mu_;
  CondVar changed_;
  std::deque<Reload*> waiting_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_ADMIN_SERVICE_H_
