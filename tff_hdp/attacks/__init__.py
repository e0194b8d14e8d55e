"""What an observer can do with what it sees, beside what theory allows it."""
