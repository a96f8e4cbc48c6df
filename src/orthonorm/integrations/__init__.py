"""What other packages want; nothing here is imported with the library."""
