"""Reports of the paper's other networks: tables, figures and claims, from records alone."""
