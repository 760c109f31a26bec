// Reflection, from the descriptors that are linked into the program.
// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/reflection_service.h"

#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/alarm.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/grpc_status.h"
#include "server/scheduler/refusal.h"
#include "server/system/peer.h"

namespace ulfd::server {
namespace {

namespace pb = google::protobuf;
namespace v1 = grpc::reflection::v1alpha;

const pb::DescriptorPool& Pool() { return *pb::DescriptorPool::generated_pool(); }

// The file and those that it needs, each once.
void AddFile(const pb::FileDescriptor& file, std::set<const pb::FileDescriptor*>& seen,
             v1::FileDescriptorResponse& response) {
  if (!seen.insert(&file).second) return;
  pb::FileDescriptorProto proto;
  file.CopyTo(&proto);
  response.add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), seen, response);
}

void Describe(const pb::FileDescriptor* file, v1::ServerReflectionResponse& response) {
  if (file == nullptr) {
    response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    response.mutable_error_response()->set_error_message("reflection: nothing of that name");
    return;
  }
  std::set<const pb::FileDescriptor*> seen;
  AddFile(*file, seen, *response.mutable_file_descriptor_response());
}

const pb::FileDescriptor* FileOfExtension(const v1::ExtensionRequest& request) {
  const pb::Descriptor* type = Pool().FindMessageTypeByName(request.containing_type());
  const pb::FieldDescriptor* extension =
      type == nullptr ? nullptr : Pool().FindExtensionByNumber(type, request.extension_number());
  return extension == nullptr ? nullptr : extension->file();
}

}  // namespace

// One stream, or one that is to come.  Reads a request, writes its reply, reads the next one.
class ReflectionService::Stream final : public RpcCall {
 public:
  // Waits for one stream; each that comes waits for the next one.
  static void Await(ReflectionService& service, CallReceiver& receiver) {
    if (!receiver.Enter()) return;
    auto* stream = new Stream(service, receiver);
    static const int index = MethodIndex(service.full_name(), "ServerReflectionInfo");
    service.methods_.RequestAsyncBidiStreaming(index, &stream->context(), &stream->stream_,
                                               receiver.queue(), receiver.queue(),
                                               stream->received());
  }

  // Ends the stream, unless it has ended.
  void Finish(const grpc::Status& status) override {
    MutexLock lock(mu_);
    EndLocked(status);
  }

 private:
  Stream(ReflectionService& service, CallReceiver& receiver)
      : RpcCall(receiver), service_(service), stream_(&context()) {}

  void Answer() override {
    const grpc::Status added = service_.Add(this, peer());
    MutexLock lock(mu_);
    if (!added.ok()) return EndLocked(added);
    ReadNext();
    SetAlarm();
  }
  void AwaitNext() override { Await(service_, receiver()); }
  void Closed() override { Finish({grpc::StatusCode::CANCELLED, "the caller went away"}); }
  void Over() override { service_.Remove(this, peer()); }

  void OnRead(bool ok) {
    service_.aside_.Add([this, ok] {
      OrNoMemory([this, ok] { HasRead(ok); });
      StepEnded();
    });
  }
  void HasRead(bool ok) {
    MutexLock lock(mu_);
    reading_ = false;
    asked_ = true;
    if (!ok) {
      EndLocked(grpc::Status::OK);  // The client has no more requests, or is gone.
    } else if (!finished_) {
      Reply();
    }
  }
  void OnWritten(bool ok) {
    {
      MutexLock lock(mu_);
      writing_ = false;
      if (!ok) {
        EndLocked({grpc::StatusCode::CANCELLED, "the caller went away"});
      } else if (!finished_) {
        ReadNext();
      }
    }
    StepEnded();
  }
  // The time is over, or the alarm was cancelled at the end.
  void OnAlarm(bool) {
    {
      MutexLock lock(mu_);
      if (!finished_ && !std::exchange(asked_, false)) {
        EndLocked({grpc::StatusCode::DEADLINE_EXCEEDED,
                   absl::StrCat("reflection: no request for ", kMostIdle.count(), " s")});
        if (writing_)
          context().TryCancel();  // Or the status would wait behind a reply that nobody takes.
      } else if (!finished_) {
        SetAlarm();
      }
    }
    StepEnded();
  }

  void EndLocked(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_) return;
    finished_ = true;
    alarm_.Cancel();
    stream_.Finish(status, finished());
  }
  void ReadNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_ || reading_) return;
    reading_ = true;
    StepBegun();
    stream_.Read(&bytes_, static_cast<CallEvent*>(&read_));
  }
  void SetAlarm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_) return;
    StepBegun();
    alarm_.Set(receiver().queue(), std::chrono::system_clock::now() + kMostIdle,
               static_cast<CallEvent*>(&rang_));
  }
  void Reply() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    static const MessageScan scan(*v1::ServerReflectionRequest::descriptor());
    if (bytes_.Length() > kMaxRequestBytes) {
      return EndLocked({grpc::StatusCode::RESOURCE_EXHAUSTED,
                        absl::StrCat("reflection: a request of ", bytes_.Length(), " bytes, limit ",
                                     kMaxRequestBytes)});
    }
    v1::ServerReflectionRequest request;
    const grpc::Status read = Read(bytes_, scan, request);
    bytes_.Clear();
    Forget();
    if (!read.ok()) return EndLocked(read);
    v1::ServerReflectionResponse response;
    service_.Answer(request, response);
    // One reply at a time: a client that takes none gets no second one.
    writing_ = true;
    StepBegun();
    stream_.Write(response, static_cast<CallEvent*>(&written_));
  }

  ReflectionService& service_;
  grpc::ByteBuffer bytes_;
  grpc::ServerAsyncReaderWriter<v1::ServerReflectionResponse, grpc::ByteBuffer> stream_;
  grpc::Alarm alarm_;
  StepEvent<Stream, &Stream::OnRead> read_{*this};
  StepEvent<Stream, &Stream::OnWritten> written_{*this};
  StepEvent<Stream, &Stream::OnAlarm> rang_{*this};

  Mutex mu_;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool asked_ ABSL_GUARDED_BY(mu_) = false;  // Since the alarm was set.
};

void ReflectionService::AwaitCalls(CallReceiver& receiver) {
  aside_.Add([] {});  // From now on it has a thread, which the system may refuse later.
  for (int i = 0; i < kAwaitedCalls; ++i) Stream::Await(*this, receiver);
}

grpc::Status ReflectionService::Add(Stream* stream, const std::string& peer) {
  MutexLock lock(mu_);
  if (ended_) return ToGrpcStatus(ShuttingDown());
  std::set<Stream*> added{stream};  // What may find no memory comes before the room is taken.
  int& own = of_connection_[peer];
  if (!SharesPeer(peer) && own >= kMaxOfConnection) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat("reflection: ", kMaxOfConnection, " streams on this connection already")};
  }
  if (!room_.Take(ClientOf(peer), 1)) {
    if (own == 0) of_connection_.erase(peer);
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat("reflection: ", streams_.size(), " streams are open, limit ", kMaxStreams,
                         ", of which a part is left to other clients")};
  }
  streams_.merge(added);
  ++own;
  return grpc::Status::OK;
}

void ReflectionService::Remove(Stream* stream, const std::string& peer) {
  MutexLock lock(mu_);
  if (streams_.erase(stream) == 0) return;
  if (--of_connection_[peer] == 0) of_connection_.erase(peer);
  room_.Release(ClientOf(peer), 1);
}

void ReflectionService::EndStreams() {
  MutexLock lock(mu_);
  ended_ = true;
  for (Stream* stream : streams_) stream->Finish(ToGrpcStatus(ShuttingDown()));
}

void ReflectionService::Answer(const v1::ServerReflectionRequest& request,
                               v1::ServerReflectionResponse& response) const {
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  using Request = v1::ServerReflectionRequest;
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      return Describe(Pool().FindFileByName(request.file_by_filename()), response);
    case Request::kFileContainingSymbol:
      return Describe(Pool().FindFileContainingSymbol(request.file_containing_symbol()), response);
    case Request::kFileContainingExtension:
      return Describe(FileOfExtension(request.file_containing_extension()), response);
    case Request::kAllExtensionNumbersOfType: {
      const std::string& name = request.all_extension_numbers_of_type();
      const pb::Descriptor* type = Pool().FindMessageTypeByName(name);
      if (type == nullptr) return Describe(nullptr, response);
      std::vector<const pb::FieldDescriptor*> extensions;
      Pool().FindAllExtensions(type, &extensions);
      auto& numbers = *response.mutable_all_extension_numbers_response();
      numbers.set_base_type_name(name);
      for (const auto* extension : extensions) numbers.add_extension_number(extension->number());
      return;
    }
    case Request::kListServices:
      for (const std::string& name : services_) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      return;
    case Request::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  response.mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
  response.mutable_error_response()->set_error_message("reflection: the request asks for nothing");
}

}  // namespace ulfd::server
