"""What touches Flower: messages on the wire, and the host that sets up a process's apps."""
