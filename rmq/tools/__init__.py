"""Offline tools: check and repair a store without a broker, or beside a running one.

All tools except `repair` open files only for reading and take no lock.  Only this
package needs numpy: no broker process imports it.
"""
