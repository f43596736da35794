"""Tables, columns and files that commands print or write.

No requests are made here.
"""
