"""ClusterUsers: checks whether a user may read or change the data of a name server or
controller.

Users and policies come from the broker's files, which are read again after they were
replaced.
"""

from pathlib import Path

from rmq.access.actions import Action
from rmq.access.authorization import RequiredPermission, Rights
from rmq.access.config import AuthConfig
from rmq.access.resources import cluster_resource
from rmq.access.tables import AclTable, UserTable
from rmq.core.clock import Clock
from rmq.protocol.command import Command


class ClusterUsers:
    """The users of one folder.

    A server imports this module only with access control.
    """

    def __init__(
        self, auth: AuthConfig, cluster_name: str, folder: Path, clock: Clock
    ) -> None:
        """`folder` has users.json and acls.json."""
        self._is_authorizing = auth.authorization_enabled
        self._initial_users = auth.initial_users()
        self._users, self._acls = UserTable(folder, clock), AclTable(folder, clock)
        self._rights = Rights(self._users, self._acls)
        self._resource = cluster_resource(cluster_name)

    def check_request(self, request: Command, action: Action, source: str) -> None:
        """Raise `RequestRejected` unless the sender may do this on the cluster."""
        self._acls.follow()
        if not self._users.follow():  # otherwise deleted users would be valid again
            for name, password in self._initial_users:
                self._users.add_super_user(name, password)
        self._rights.authenticate(request)
        if self._is_authorizing:
            need = RequiredPermission(self._resource, (action,))
            self._rights.authorize(request, [need], source)
