"""The admin service of a daemon, and daemons that only it makes do something.
SPDX-License-Identifier: Apache-2.0
"""
from harness.clients import Connected
from harness.fixtures import DaemonTest
from proto import admin_pb2 as admin_pb

# Nothing but requests makes such a daemon look at its repository; `admin_address` is to follow.
ON_REQUEST = """
watch { poll_interval_ms: 3600000 settle_time_ms: 0 }
shutdown { drain_delay_ms: 0 }
"""


class AdminClient(Connected):
    def call(self, method, timeout=60, metadata=None, **fields):
        """Calls AdminService.`method` with a request of these fields."""
        request = getattr(admin_pb, method + "Request")
        reply = getattr(admin_pb, method + "Response")
        return self.channel.unary_unary(f"/ulfd.admin.v1.AdminService/{method}",
                                        request.SerializeToString, reply.FromString)(
                                            request(**fields), timeout=timeout, metadata=metadata)


class AdminDaemonTest(DaemonTest):
    """A DaemonTest with `admin`, an AdminClient."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.admin = AdminClient(cls.daemon.admin_target)

    @classmethod
    def tearDownClass(cls):
        cls.admin.close()
        super().tearDownClass()
