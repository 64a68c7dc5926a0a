"""Python calls compiled entry points, with explicit signatures and a policy's hooks as plain memory."""
