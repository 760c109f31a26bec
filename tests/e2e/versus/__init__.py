"""deploy/benchmark: ulfd beside ONNX Runtime behind a bare gRPC server.
SPDX-License-Identifier: Apache-2.0
"""
