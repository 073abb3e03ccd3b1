"""Offline tools: look at a store without a broker, or beside a running one.

Everything but `repair` opens files for reading only and takes no lock.  numpy is needed
here and nowhere else: no broker process imports this package.
"""
