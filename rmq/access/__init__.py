"""Who may do what: signatures, users and their policies. Known in Java as ACL 2.0.

Used by the plugin `auth` on the ports of a broker and by the door of a name server; a
broker signs its own requests to name servers with it.
"""
