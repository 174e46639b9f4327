"""Transports: functions that send a rendered request to a vendor and yield the bytes of its answer.

A transport is one function in `providers/<vendor>/transport.py`.  It sends by the vendor's own SDK,
or by the user's client, and yields bytes in the vendor's wire format.  A failure is one of the errors in
`errors`; the SDK's own error is the `__cause__`.
"""
