"""The checks of deploy/slo-check.
SPDX-License-Identifier: Apache-2.0
"""
