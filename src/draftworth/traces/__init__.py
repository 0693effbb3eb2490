"""Recorded prompts and outputs as token ids: record, import, keep, redact."""
