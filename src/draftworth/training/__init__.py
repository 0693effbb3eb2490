"""The EAGLE-3 pipeline: from recorded traffic to a head that an engine serves, one resumable stage after the other."""
