"""From YAML documents and API objects to typed values: decoding, error sentences, parts that several kinds share.

Nothing here belongs to one kind alone.
"""
