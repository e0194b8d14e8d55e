"""Training clients: one SGD rule, alone or in stacks."""
