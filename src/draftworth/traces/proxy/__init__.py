"""A pass-through in front of a server that records live traffic: bytes are passed on, copies of them are read aside."""
