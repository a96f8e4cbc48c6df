"""Tables of reports, one file a kind."""
