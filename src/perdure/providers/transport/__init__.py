"""Transports: how a rendered request reaches a vendor, and how its bytes come back.

A transport is one function in `providers/<vendor>/transport.py`.  It sends by the vendor's own SDK,
or by a client that the user has, and yields bytes in the vendor's wire format.  What goes wrong is
one of the errors in `faults`; the SDK's own error is the cause.
"""
