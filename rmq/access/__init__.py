"""Access control: signatures, users and their policies. Known in Java as ACL 2.0.

The plugin `auth` uses it on the ports of a broker, and `Door` on that of a name server;
a broker signs its own requests to name servers with it.
"""
