// A collector of traces on @grpc/grpc-js, whose messages are read by OpenTelemetry's own package.
// Prints its port, then each span as a line of JSON.
// SPDX-License-Identifier: Apache-2.0
//
//   node collector.js [hang]      hang: takes calls and never answers
'use strict';

const grpc = require('@grpc/grpc-js');
const root = require('@opentelemetry/otlp-transformer/build/src/generated/root');

const { ExportTraceServiceRequest, ExportTraceServiceResponse } =
  root.opentelemetry.proto.collector.trace.v1;
const service = {
  Export: {
    path: '/opentelemetry.proto.collector.trace.v1.TraceService/Export',
    requestStream: false,
    responseStream: false,
    requestDeserialize: (bytes) => ExportTraceServiceRequest.decode(bytes),
    responseSerialize: (reply) => Buffer.from(ExportTraceServiceResponse.encode(reply).finish()),
  },
};

const hex = (bytes) => Buffer.from(bytes || []).toString('hex');
const attributes = (list) => Object.fromEntries(
  list.map(({ key, value }) => [key, value.stringValue ?? Number(value.intValue)]));

function onExport(call, answer) {
  if (process.argv[2] === 'hang') return;
  for (const { resource, scopeSpans } of call.request.resourceSpans) {
    for (const span of scopeSpans.flatMap((scope) => scope.spans)) {
      console.log(JSON.stringify({
        resource: attributes(resource.attributes), trace: hex(span.traceId), id: hex(span.spanId),
        parent: hex(span.parentSpanId), name: span.name, kind: span.kind,
        start: String(span.startTimeUnixNano), end: String(span.endTimeUnixNano),
        attributes: attributes(span.attributes), status: span.status,
      }));
    }
  }
  answer(null, {});
}

const server = new grpc.Server();
server.addService(service, { Export: onExport });
server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log(port);
});
