"""Forms in which requests are written down: chat messages, the APIs that differ, conversations, bare lengths."""
