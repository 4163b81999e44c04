"""What other frameworks need to be told of the device; each module is imported by who wants it."""
