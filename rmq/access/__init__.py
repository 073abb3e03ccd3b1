"""Access control: signatures, users and their policies. Known in Java as ACL 2.0.

The plugin `auth` uses it on the ports of a broker, `RequestGate` on the ports of a name
server and a controller. A broker signs its own requests with it.
"""
