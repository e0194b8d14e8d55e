"""Tables and figures of the five systems at one epsilon."""
