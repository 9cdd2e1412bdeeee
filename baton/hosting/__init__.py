"""What a worker's activities run inside: metering and tracing."""
