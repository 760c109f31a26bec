"""What the end-to-end tests share: processes, stubs, model files and their reference scores.
SPDX-License-Identifier: Apache-2.0
"""
