"""Headers of users and policies."""

from rmq.protocol.headers import Header


class UserRequestHeader(Header, kw_only=True):
    """Requests 3001 to 3004 AUTH_CREATE_USER … AUTH_GET_USER."""

    username: str | None = None


class ListUsersRequestHeader(Header, kw_only=True):
    """Request 3005 AUTH_LIST_USER: with a part of the wanted names."""

    filter: str | None = None


class AclRequestHeader(Header, kw_only=True):
    """Requests 3006, 3007 and 3009: a subject, written `User:name`."""

    subject: str | None = None


class DeleteAclRequestHeader(Header, kw_only=True):
    """Request 3008 AUTH_DELETE_ACL: without a resource all rules of the subject are
    deleted.
    """

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequestHeader(Header, kw_only=True):
    """Request 3010 AUTH_LIST_ACL: with parts of the wanted subjects and resources."""

    subject_filter: str | None = None
    resource_filter: str | None = None
