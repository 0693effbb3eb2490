"""What a running server, a page of metrics or a log tells of speculation, whichever engine wrote it."""
