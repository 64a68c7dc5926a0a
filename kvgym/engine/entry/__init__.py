"""Compiled entry points: what Python calls, with explicit signatures and a policy's hooks as plain memory."""
