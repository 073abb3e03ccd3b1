"""Offline tools: check and repair a store, and check it while its broker runs.

All tools except `repair` open files only for reading and take no lock.  Only this
package needs numpy: no broker process imports it.
"""
