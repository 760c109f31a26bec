// ulfd.admin.v1.AdminService: the state of the server, a reload on demand, and changes of what is
// served.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_ADMIN_SERVICE_H_
#define ULFD_SERVER_ADMIN_SERVICE_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/tensor/mutex.h"
#include "proto/admin.grpc.pb.h"
#include "server/model_change.h"
#include "server/status_report.h"

namespace ulfd::server {

// A reload takes as long as loading takes: it waits on a thread of this class, never on one of
// gRPC's or a worker's.  Changes wait nowhere: the manager's loader thread answers them.
class AdminService final : public ulfd::admin::v1::AdminService::CallbackService {
 public:
  // Reloads that wait behind the one that runs; more are refused with RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxWaiting = 8;
  // Reads the configuration anew: a change of kind kConfigure, or why it cannot be one.
  using ReadConfigure = std::function<absl::StatusOr<ModelChange>()>;

  AdminService(ModelManager& models, const StatusReport& report, const Clock& clock,
               ReadConfigure read_configure);
  // Ends calls that wait with UNAVAILABLE, then joins the thread.
  ~AdminService() override;
  // The first half of the destructor, for a server that waits for its calls: also bounds the reload
  // that runs.  A change that is being carried out goes on.
  void Stop();

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* call,
                                      const ulfd::admin::v1::GetStatusRequest* request,
                                      ulfd::admin::v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* ReloadRepository(
      grpc::CallbackServerContext* call, const ulfd::admin::v1::ReloadRepositoryRequest* request,
      ulfd::admin::v1::ReloadRepositoryResponse* response) override;
  grpc::ServerUnaryReactor* LoadModel(grpc::CallbackServerContext* call,
                                      const ulfd::admin::v1::LoadModelRequest* request,
                                      ulfd::admin::v1::LoadModelResponse* response) override;
  grpc::ServerUnaryReactor* UnloadModel(grpc::CallbackServerContext* call,
                                        const ulfd::admin::v1::UnloadModelRequest* request,
                                        ulfd::admin::v1::UnloadModelResponse* response) override;
  grpc::ServerUnaryReactor* SetLabel(grpc::CallbackServerContext* call,
                                     const ulfd::admin::v1::SetLabelRequest* request,
                                     ulfd::admin::v1::SetLabelResponse* response) override;
  grpc::ServerUnaryReactor* Rollback(grpc::CallbackServerContext* call,
                                     const ulfd::admin::v1::RollbackRequest* request,
                                     ulfd::admin::v1::RollbackResponse* response) override;
  grpc::ServerUnaryReactor* ReloadConfig(grpc::CallbackServerContext* call,
                                         const ulfd::admin::v1::ReloadConfigRequest* request,
                                         ulfd::admin::v1::ReloadConfigResponse* response) override;

 private:
  class Reload;
  class Change;
  void Loop();
  absl::Status Run(Reload& reload);
  // Hands the change to the manager; the reply is filled and sent when it is done.
  template <typename Reply>
  grpc::ServerUnaryReactor* Apply(grpc::CallbackServerContext* call,
                                  absl::StatusOr<ModelChange> change, Reply* reply);

  ModelManager& models_;
  const StatusReport& report_;
  const Clock& clock_;
  const ReadConfigure read_configure_;

  Mutex mu_;
  CondVar changed_;
  std::deque<Reload*> waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<std::weak_ptr<Change>> changes_ ABSL_GUARDED_BY(mu_);  // Not answered yet, at least.
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // Last: it uses everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_ADMIN_SERVICE_H_
